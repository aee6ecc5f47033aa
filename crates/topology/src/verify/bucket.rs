//! Rules about the bucket that leases are kept in.

use super::Check;
use crate::rules::{
    BUCKET_DIRECT, BUCKET_HISTORY, BUCKET_MISSING, BUCKET_REPLICAS, BUCKET_STORAGE, BUCKET_TTL,
};

impl Check<'_> {
    pub(super) fn bucket(&mut self) {
        let observed = self.observed;
        let object = format!("kv bucket {}", self.spec.coord_bucket());
        let Some(stream) = observed.stream(&self.spec.coord_stream()) else {
            return self.want(false, BUCKET_MISSING, &object, "there", "missing");
        };
        let config = &stream.info.config;
        let values = config.max_msgs_per_subject;
        self.want(values >= 1, BUCKET_HISTORY, &object, "1 or more", values);
        self.want(config.allow_direct, BUCKET_DIRECT, &object, "true", "false");
        self.want(config.max_age.is_unset(), BUCKET_TTL, &object, "unset", config.max_age);
        self.want(config.storage == "file", BUCKET_STORAGE, &object, "file", &config.storage);
        let replicas = config.num_replicas;
        self.want(replicas >= 3, BUCKET_REPLICAS, &object, "3 or more", replicas);
        self.unknown_fields(&object, config);
    }
}
