//! Tenants: what each may use of the queue and what it uses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use wavehouse_broker::TenantLimits;
use wavehouse_core::TenantId;

use crate::options::TENANTS_MAX;

/// One tenant's limits and unwritten bytes.
#[derive(Debug)]
pub(crate) struct Tenant {
    unwritten: AtomicU64,
    unwritten_max: AtomicU64,
    gap_ns: AtomicU64,
}

impl Tenant {
    fn new(limits: TenantLimits) -> Self {
        let tenant = Self {
            unwritten: AtomicU64::new(0),
            unwritten_max: AtomicU64::new(0),
            gap_ns: AtomicU64::new(0),
        };
        tenant.set(limits);
        tenant
    }

    fn set(&self, limits: TenantLimits) {
        let gap_ns = u64::try_from(limits.gap_window.as_nanos()).unwrap_or(u64::MAX);
        self.unwritten_max.store(limits.unwritten_bytes_max, Ordering::Relaxed);
        self.gap_ns.store(gap_ns, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> TenantLimits {
        TenantLimits { unwritten_bytes_max: self.unwritten_max(), gap_window: self.gap_window() }
    }

    pub(crate) fn unwritten_max(&self) -> u64 {
        self.unwritten_max.load(Ordering::Relaxed)
    }

    pub(crate) fn gap_window(&self) -> Duration {
        Duration::from_nanos(self.gap_ns.load(Ordering::Relaxed))
    }

    /// Counts bytes that are about to be stored, unless they would not fit the budget.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let max = self.unwritten_max();
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= max);
        self.unwritten.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Counts bytes that are stored, whatever the budget.
    pub(crate) fn add(&self, bytes: u64) {
        self.unwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back what [`reserve`](Self::reserve) or [`add`](Self::add) counted.
    pub(crate) fn give_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        // The closure never declines.
        let _before = self.unwritten.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// All tenants that have sent anything or have limits of their own.
#[derive(Debug)]
pub(crate) struct Tenants {
    default: TenantLimits,
    known: RwLock<HashMap<TenantId, Arc<Tenant>>>,
}

impl Tenants {
    pub(crate) fn new(default: TenantLimits) -> Self {
        Self { default, known: RwLock::default() }
    }

    fn get(&self, id: &TenantId) -> Option<Arc<Tenant>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The tenant, made known if need be; none when there are too many.
    pub(crate) fn enter(&self, id: &TenantId) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.get(id) {
            return Some(tenant);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TENANTS_MAX && !known.contains_key(id) {
            return None;
        }
        let tenant = known.entry(id.clone()).or_insert_with(|| Arc::new(Tenant::new(self.default)));
        Some(Arc::clone(tenant))
    }

    pub(crate) fn set_limits(&self, id: &TenantId, limits: TenantLimits) {
        if let Some(tenant) = self.enter(id) {
            tenant.set(limits);
        }
    }

    pub(crate) fn limits(&self, id: &TenantId) -> TenantLimits {
        self.get(id).map_or(self.default, |tenant| tenant.limits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn() {
        let default = TenantLimits { unwritten_bytes_max: 10, gap_window: Duration::ZERO };
        let tenants = Tenants::new(default);
        let id = TenantId::default();
        assert_eq!(tenants.limits(&id), default);
        let tenant = tenants.enter(&id).unwrap();
        assert!(tenant.reserve(7) && !tenant.reserve(4) && tenant.reserve(3) && !tenant.reserve(1));
        tenants.set_limits(&id, TenantLimits { unwritten_bytes_max: 5, ..default });
        tenant.give_back(6);
        assert!(tenant.reserve(1) && !tenant.reserve(1), "4 of 5 are in use");
        tenant.give_back(99);
        assert!(tenant.reserve(5));
    }
}
