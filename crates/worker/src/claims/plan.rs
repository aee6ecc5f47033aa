//! Which units to give up and which to take, given who is there. Every process decides alike from what it sees; where
//! their views differ for a while, the fence of a unit's batches keeps them from harm.

use std::collections::{BTreeMap, BTreeSet};

use wavehouse_broker::TakeOver;
use wavehouse_core::{MemberSlot, UnitId, assign};

use crate::lease::View;

/// One that shares the units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) slot: MemberSlot,
    pub(crate) session: String,
    /// How it was told that the queue is divided; none counts as this process's own.
    pub(crate) view: Option<View>,
    /// The units that it has, or is about to have or to give up, as far as it says.
    pub(crate) held: BTreeSet<UnitId>,
}

/// One whose slot still stands but who is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) member: Member,
    pub(crate) how: TakeOver,
}

/// What is decided upon.
#[derive(Debug)]
pub(crate) struct World<'a> {
    /// How this process was told that the queue is divided.
    pub(crate) view: View,
    /// Units beside the configured ones.
    pub(crate) extras: &'a [UnitId],
    /// Who is there, this process included if it has a slot.
    pub(crate) members: &'a [Member],
    pub(crate) former: &'a [Former],
    /// This process's session.
    pub(crate) session: &'a str,
    /// Units that this process holds or is about to.
    pub(crate) held: &'a BTreeSet<UnitId>,
    /// Units that it is giving up.
    pub(crate) leaving: &'a BTreeSet<UnitId>,
}

/// What to do.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) give_up: Vec<UnitId>,
    /// Units to be taken once everybody can read that they are this process's. Until then somebody may decide from an
    /// older view that they are his.
    pub(crate) claim: BTreeSet<UnitId>,
    /// In order; with whether a former owner is to be fenced off first.
    pub(crate) take: Vec<(UnitId, Option<TakeOver>)>,
    /// Whether this process speaks for all, having the lowest slot.
    pub(crate) lowest: bool,
}

type Owner = (MemberSlot, String);

/// What a plan remembers for the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whose each unit was; none before the first plan.
    owners: Option<BTreeMap<UnitId, Owner>>,
    /// Units of this process whose former owner is yet to be fenced off.
    due: BTreeMap<UnitId, TakeOver>,
    /// Units of this process that another one still had, and that one.
    awaited: BTreeMap<UnitId, Owner>,
}

impl Memory {
    /// A unit left this process without being given up: what it had in hand is still out.
    pub(crate) fn lost(&mut self, unit: UnitId) {
        self.due.entry(unit).or_insert(TakeOver::Lapsed);
    }
}

/// Decides.
pub(crate) fn plan(memory: &mut Memory, world: &World<'_>, name: &dyn Fn(UnitId) -> String) -> Plan {
    let owners = owners(world.view, world.extras, world.members, name);
    let mine = world.members.iter().find(|member| member.session == world.session);
    let targets: BTreeSet<UnitId> = match mine {
        Some(me) => owners.iter().filter(|(_, owner)| owner.0 == me.slot).map(|(unit, _)| *unit).collect(),
        None => BTreeSet::new(),
    };
    let fences = fences(memory, world, name);
    memory.due.retain(|unit, _| targets.contains(unit));
    for (unit, how) in fences {
        if targets.contains(&unit) && !world.held.contains(&unit) {
            memory.due.insert(unit, how);
        }
    }
    let free = |unit: &&UnitId| !world.held.contains(unit) && !world.leaving.contains(unit);
    let others: Vec<&Member> =
        world.members.iter().filter(|member| member.session != world.session).collect();
    let (mut take, mut claim) = (Vec::new(), BTreeSet::new());
    let said = |unit: &UnitId| mine.is_some_and(|me| me.held.contains(unit));
    memory.awaited.clear();
    for unit in targets.iter().filter(free) {
        match others.iter().find(|member| member.held.contains(unit)) {
            Some(holder) => {
                memory.awaited.insert(*unit, (holder.slot, holder.session.clone()));
            }
            None if said(unit) => take.push(*unit),
            None => {
                claim.insert(*unit);
            }
        }
    }
    // With nobody there, nothing is known of who was there before.
    if !owners.is_empty() || memory.owners.is_some() {
        memory.owners = Some(owners);
    }
    Plan {
        claim,
        give_up: world.held.difference(&targets).copied().collect(),
        take: take.into_iter().map(|unit| (unit, memory.due.remove(&unit))).collect(),
        lowest: mine.is_some_and(|me| world.members.iter().all(|member| member.slot >= me.slot)),
    }
}

/// Units whose owner, as last seen, is gone.
fn fences(memory: &Memory, world: &World<'_>, name: &dyn Fn(UnitId) -> String) -> BTreeMap<UnitId, TakeOver> {
    let alone = world.members.iter().all(|member| member.session == world.session);
    let first;
    let before = match &memory.owners {
        Some(owners) => owners,
        None => {
            // Before this process came, its units were those of the others, of whom some are no longer there.
            let former = world.former.iter().map(|former| &former.member);
            let others = world.members.iter().filter(|member| member.session != world.session);
            let all: Vec<Member> = others.chain(former).cloned().collect();
            first = owners(world.view, world.extras, &all, name);
            &first
        }
    };
    let there = |owner: &Owner| {
        let same = |member: &Member| (member.slot, member.session.as_str()) == (owner.0, owner.1.as_str());
        owner.1 == world.session || world.members.iter().any(same)
    };
    let how = |session: &String| {
        let same = |former: &&Former| former.member.session == *session;
        world.former.iter().find(same).map_or(TakeOver::Lapsed, |former| former.how)
    };
    // Whoever gives its slot back has given up every unit before; a slot that another has may have been taken from it.
    let resigned = |owner: &Owner| {
        let members = world.members.iter().chain(world.former.iter().map(|former| &former.member));
        members.into_iter().all(|member| member.slot != owner.0)
    };
    let all = before.iter().chain(&memory.awaited);
    let gone = all.filter(|(_, owner)| !there(owner) && !resigned(owner));
    let mut fences: BTreeMap<UnitId, TakeOver> = gone.map(|(unit, owner)| (*unit, how(&owner.1))).collect();
    if memory.owners.is_none() && alone {
        // One that starts alone may be what is left after a crash of all.
        for unit in world.view.0.units().chain(world.extras.iter().copied()) {
            fences.entry(unit).or_insert(TakeOver::Lapsed);
        }
    }
    fences
}

/// Whose each unit is. Units that only some members know go to one of those; units that nobody was told of are shared out
/// apart, so that processes who see different ones of them still agree on all others.
fn owners(
    ours: View,
    extras: &[UnitId],
    members: &[Member],
    name: &dyn Fn(UnitId) -> String,
) -> BTreeMap<UnitId, Owner> {
    let view_of = |member: &Member| member.view.unwrap_or(ours);
    let views: Vec<(MemberSlot, View)> =
        members.iter().map(|member| (member.slot, view_of(member))).collect();
    let mut distinct: Vec<View> = Vec::new();
    for (_, view) in &views {
        if !distinct.contains(view) {
            distinct.push(*view);
        }
    }
    let configured: BTreeSet<UnitId> = distinct.iter().flat_map(|view| view.0.units()).collect();
    let extras: BTreeSet<UnitId> = extras.iter().copied().filter(|unit| !configured.contains(unit)).collect();
    let knows = |unit: UnitId, slot: MemberSlot| {
        views.iter().any(|(there, view)| *there == slot && view.contains(unit))
    };
    let mut owners = BTreeMap::new();
    share_out(&configured, members, &knows, name, &mut owners);
    share_out(&extras, members, &|_, _| true, name, &mut owners);
    owners
}

fn share_out(
    units: &BTreeSet<UnitId>,
    members: &[Member],
    eligible: &dyn Fn(UnitId, MemberSlot) -> bool,
    name: &dyn Fn(UnitId) -> String,
    owners: &mut BTreeMap<UnitId, Owner>,
) {
    let named: BTreeMap<String, UnitId> = units.iter().map(|unit| (name(*unit), *unit)).collect();
    let names: Vec<&str> = named.keys().map(String::as_str).collect();
    let slots: Vec<MemberSlot> = members.iter().map(|member| member.slot).collect();
    let of_name = |text: &str| named.get(text).copied();
    let fits = |text: &str, slot| of_name(text).is_some_and(|unit| eligible(unit, slot));
    for (text, slot) in assign(&names, &slots, fits) {
        let session = members.iter().find(|member| member.slot == slot).map(|member| member.session.clone());
        if let (Some(unit), Some(session)) = (of_name(text), session) {
            owners.insert(unit, (slot, session));
        }
    }
}

#[cfg(test)]
mod tests;
