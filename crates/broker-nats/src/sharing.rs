//! Sharing the units among processes: what only the queue can do for those who agree through leases.
//!
//! A unit is one durable. Its reader is pinned on the servers; a pin lapses ten seconds or more after the reader's last
//! pull. Taking a unit over puts its durable back to the last row below which all are acked, so that what a gone owner
//! held comes back at once and nothing that was acked does. It is only ever done before this process pulls: it would hand
//! out the caller's own rows a second time.
//!
//! - After a lease has **lapsed**, a reader that is pinned or was active a moment ago (by the servers' clock) is left alone.
//! - Under **suspicion** neither is waited for. First the batch record is taken over, so that the former owner can begin no
//!   further insert; then its pin is taken and the durable put back.
//!
//! Processes see each other on `<prefix>.live.<session>`: whoever is subscribed there answers. Where the servers do not
//! permit that, nothing is concluded from silence.

mod look;
mod signs;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use wavehouse_broker::{Answer, LeaseBucket, SharingError, TakeOver, UnitSharing};
use wavehouse_core::{LogId, PartitionId, Placement, ShardId, UnitId};
use wavehouse_nats::{CallError, ConsumerInfo};
use wavehouse_topology::limits::PRIORITY_GROUP;

use crate::bucket::NatsBucket;
use crate::logs::log_id;
use crate::shared::{Shared, UnitPlace, lock};

pub(crate) use look::{is_active, is_pinned};
use signs::Signs;

/// Durables that are looked at at once.
const LOOKS_MAX: usize = 16;

/// Takes the batch record of a unit of this log over, so that its former owner can write it no more. Says what was seen
/// when it cannot.
pub(crate) type Fence =
    Arc<dyn Fn(UnitId, LogId) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The units of one deployment, as this process shares them.
pub(crate) struct Sharing {
    shared: Arc<Shared>,
    bucket: Arc<NatsBucket>,
    fence: Fence,
    signs: Signs,
}

impl Sharing {
    pub(crate) fn new(shared: Arc<Shared>, fence: Fence) -> Self {
        let bucket = Arc::new(NatsBucket::new(&shared.jetstream, &shared.spec().coord_bucket()));
        let signs = Signs::new(shared.connection.clone(), shared.spec().prefix().clone(), &shared.session);
        Self { shared, bucket, fence, signs }
    }

    /// Ends answering.
    pub(crate) fn close(&self) {
        self.signs.close();
    }

    fn place(&self, unit: UnitId) -> Result<UnitPlace, SharingError> {
        self.shared.unit_place(unit).ok_or(SharingError::Gone { unit })
    }

    async fn look(&self, unit: UnitId, place: &UnitPlace) -> Result<ConsumerInfo, SharingError> {
        let info = self.shared.jetstream.consumer_info(&place.stream, &place.durable).await;
        info.map_err(|error| failed(unit, &error))
    }

    /// Whether a unit has rows that nobody reads; `None` when it is not there.
    async fn is_unread(&self, unit: UnitId) -> Result<Option<UnitId>, SharingError> {
        let Ok(place) = self.place(unit) else { return Ok(None) };
        match self.look(unit, &place).await {
            Ok(info) => Ok(look::is_unread(&info).then_some(unit)),
            Err(SharingError::Gone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The units beside the configured ones of one stream.
    async fn extras_of(&self, stream: String) -> Result<Vec<(UnitId, UnitPlace)>, CallError> {
        let (jetstream, spec) = (&self.shared.jetstream, self.shared.spec());
        let gone = |error: CallError| if error.is_stream_gone() { Ok(Vec::new()) } else { Err(error) };
        let info = match jetstream.stream_info(&stream).await {
            Ok(info) => info,
            Err(error) => return gone(error),
        };
        let names = match jetstream.consumer_names(&stream).await {
            Ok(names) => names,
            Err(error) => return gone(error),
        };
        let Some(partition) = look::partition_of(&info.config, spec.prefix()) else { return Ok(Vec::new()) };
        let log = log_id(&stream, &info.created);
        let extras = names.into_iter().filter_map(|durable| {
            let shard = u16::try_from(spec.shard_of(&durable)?).ok()?;
            let unit = UnitId { partition: PartitionId(partition), shard: ShardId(shard) };
            let place = UnitPlace { stream: stream.clone(), durable, log };
            (!spec.placement().contains(unit)).then_some((unit, place))
        });
        Ok(extras.collect())
    }
}

#[async_trait]
impl UnitSharing for Sharing {
    fn leases(&self) -> Arc<dyn LeaseBucket> {
        Arc::clone(&self.bucket) as Arc<dyn LeaseBucket>
    }

    fn placement(&self) -> Placement {
        self.shared.spec().placement()
    }

    fn unit_name(&self, unit: UnitId) -> String {
        self.shared.spec().unit_name(unit)
    }

    fn extras(&self) -> Vec<UnitId> {
        let mut extras: Vec<_> = lock(&self.shared.extras).keys().copied().collect();
        extras.sort();
        extras
    }

    async fn refresh_extras(&self) -> Result<(), SharingError> {
        let filter = self.shared.spec().prefix().ingest_filter();
        let unavailable = |error: CallError| SharingError::Unavailable { reason: error.to_string() };
        let streams = self.shared.jetstream.stream_names(Some(&filter)).await.map_err(unavailable)?;
        let looks: Vec<_> = streams.into_iter().map(|stream| self.extras_of(stream)).collect();
        let looked: Result<Vec<_>, _> = stream::iter(looks).buffer_unordered(LOOKS_MAX).try_collect().await;
        let extras: HashMap<_, _> = looked.map_err(unavailable)?.into_iter().flatten().collect();
        let known = std::mem::replace(&mut *lock(&self.shared.extras), extras.clone());
        if known != extras {
            let names: Vec<_> = extras.values().map(|at| format!("{}/{}", at.stream, at.durable)).collect();
            tracing::info!(?names, "units beside the configured ones");
        }
        Ok(())
    }

    async fn take_over(&self, unit: UnitId, how: TakeOver) -> Result<bool, SharingError> {
        let place = self.place(unit)?;
        let jetstream = &self.shared.jetstream;
        let mut info = self.look(unit, &place).await?;
        if how == TakeOver::Suspected {
            let fenced = (self.fence)(unit, place.log).await;
            fenced.map_err(|reason| SharingError::Unavailable { reason })?;
            let unpinned = jetstream.unpin(&place.stream, &place.durable, PRIORITY_GROUP).await;
            unpinned.map_err(|error| failed(unit, &error))?;
            info = self.look(unit, &place).await?;
        } else if look::is_pinned(&info) || (info.num_ack_pending > 0 && is_active(&info)) {
            return Err(SharingError::Held { unit });
        }
        if info.num_ack_pending == 0 {
            return Ok(false);
        }
        jetstream.reset(&place.stream, &place.durable).await.map_err(|error| failed(unit, &error))?;
        Ok(true)
    }

    async fn unread(&self, units: &[UnitId]) -> Result<Vec<UnitId>, SharingError> {
        let looks: Vec<_> = units.iter().map(|unit| self.is_unread(*unit)).collect();
        let looked: Vec<_> = stream::iter(looks).buffered(LOOKS_MAX).try_collect().await?;
        Ok(looked.into_iter().flatten().collect())
    }

    async fn answer_as(&self, session: &str) -> Result<bool, SharingError> {
        self.signs.answer_as(session).await
    }

    async fn ask(&self, session: &str) -> Answer {
        self.signs.ask(session).await
    }

    async fn nudge(&self) {
        self.signs.nudge().await;
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.signs.nudges()
    }
}

fn failed(unit: UnitId, error: &CallError) -> SharingError {
    if error.is_gone() {
        return SharingError::Gone { unit };
    }
    SharingError::Unavailable { reason: error.to_string() }
}
