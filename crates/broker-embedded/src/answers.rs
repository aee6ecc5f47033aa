//! Submissions that the writer has taken, each answered when the last of its blocks is.

use wavehouse_broker::PublishError;

use crate::intake::{Outcome, Submission, Waiting};
use crate::shared::Shared;

/// Names a block: which submission, and which of its blocks.
pub(crate) type Member = (usize, usize);

/// Submissions in work.
#[derive(Debug)]
pub(crate) struct Answers {
    /// None once answered.
    submissions: Vec<Option<Submission>>,
    left: Vec<usize>,
    /// Those that have all their answers and were not told yet.
    answered: Vec<Submission>,
}

impl Answers {
    pub(crate) fn new(submissions: Vec<Submission>) -> Self {
        let left = submissions.iter().map(|submission| submission.blocks.len()).collect();
        Self { submissions: submissions.into_iter().map(Some).collect(), left, answered: Vec::new() }
    }

    /// All blocks, in the order of their calls.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Member, &Waiting)> {
        self.submissions.iter().enumerate().flat_map(|(s, submission)| {
            let blocks = submission.iter().flat_map(|submission| &submission.blocks);
            blocks.enumerate().map(move |(b, waiting)| ((s, b), waiting))
        })
    }

    /// One block that has no answer yet.
    pub(crate) fn block(&self, (s, b): Member) -> Option<&Waiting> {
        self.submissions.get(s)?.as_ref()?.blocks.get(b)
    }

    /// Answers a block and gives back what is reserved of its tenant's budget. The sender hears of it from
    /// [`tell`](Self::tell).
    pub(crate) fn answer(&mut self, member: Member, outcome: Outcome) {
        let Some(waiting) = self.block(member) else { return };
        waiting.tenant.give_back(waiting.bytes);
        let (index, s) = (waiting.index, member.0);
        let (Some(slot), Some(left)) = (self.submissions.get_mut(s), self.left.get_mut(s)) else { return };
        if let Some(place) = slot.as_mut().and_then(|submission| submission.outcomes.get_mut(index)) {
            *place = Some(outcome);
        }
        *left -= 1;
        if *left == 0
            && let Some(submission) = slot.take()
        {
            self.answered.push(submission);
        }
    }

    /// Tells the senders of all that is answered.
    pub(crate) fn tell(&mut self, shared: &Shared) {
        let answered = std::mem::take(&mut self.answered);
        shared.herald.tell(answered.into_iter().map(|submission| submission.answered(shared)).collect());
    }

    /// Refuses several blocks for the same reason.
    pub(crate) fn refuse(&mut self, members: &[Member], error: &PublishError) {
        for member in members {
            self.answer(*member, Err(error.clone()));
        }
    }
}
