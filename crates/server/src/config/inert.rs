//! Keys that other versions of the gateway know and this one cannot honour. They are refused by name, since a setting
//! that is silently ignored is worse than one that is missing.

/// A key, or with everything below it a block, that has no effect here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inert {
    /// Its dotted path.
    pub(crate) path: &'static str,
    /// Its variable; ending in `_` it stands for all that begin so.
    pub(crate) env: Option<&'static str>,
    /// Why it has no effect.
    pub(crate) why: &'static str,
    /// What to do.
    pub(crate) fix: &'static str,
}

const NOT_YET: &str = "known, but it has no effect in this version";
const REMOVE: &str = "remove it";

const fn inert(path: &'static str, env: Option<&'static str>) -> Inert {
    Inert { path, env, why: NOT_YET, fix: REMOVE }
}

/// All of them.
pub(crate) const INERT: &[Inert] = &[
    Inert {
        path: "settings.dir",
        env: Some("WH_SETTINGS_DIR"),
        why: "settings directories are not in this version: policies, roles, pipes and tenants in one would not be obeyed",
        fix: "remove it, and put the settings of the one tenant under `tenant:` in the configuration file",
    },
    Inert {
        path: "auth.jwt_secret",
        env: Some("WH_AUTH_JWT_SECRET"),
        why: "tokens are not verified in this version: every route needs the operator's key",
        fix: "remove it, and let clients of this version send the operator's key",
    },
    inert("cache.l1_max_cost", Some("WH_CACHE_L1_MAX_COST")),
    inert("cache.redis", Some("WH_CACHE_REDIS_")),
    inert("dedupe.lease", Some("WH_DEDUPE_LEASE")),
    inert("dedupe.reserve_concurrency", Some("WH_DEDUPE_RESERVE_CONCURRENCY")),
    inert("dedupe.dynamodb", Some("WH_DEDUPE_DYNAMODB_")),
    inert("otel", Some("WH_OTEL_")),
    inert("tenant.auth", None),
    inert("tenant.dedupe", None),
    inert("tenant.dlq", None),
    inert("tenant.query", None),
    inert("tenant.stream.keepalive_buckets", None),
    inert("tenant.clickhouse.max_idle_conns", None),
    Inert {
        path: "tenant.clickhouse.tls.enabled",
        env: None,
        why: "it switches TLS of the native protocol, which this version does not speak",
        fix: "remove it, and write `https` in `tenant.clickhouse.url` or `http_scheme`",
    },
];

/// The entry that covers a dotted path.
pub(crate) fn by_path(path: &str) -> Option<&'static Inert> {
    INERT.iter().find(|inert| {
        path.strip_prefix(inert.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The entry that covers a variable.
pub(crate) fn by_env(env: &str) -> Option<&'static Inert> {
    INERT.iter().find(|inert| {
        inert.env.is_some_and(|known| env == known || (known.ends_with('_') && env.starts_with(known)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_covers_what_is_below_it() {
        assert!(by_path("cache.redis.addrs").is_some());
        assert!(by_path("cache.redisy").is_none());
        assert!(by_path("tenant.clickhouse.tls.enabled").is_some());
        assert!(by_path("tenant.clickhouse.tls.ca_file").is_none());
        assert!(by_env("WH_CACHE_REDIS_ADDRS").is_some());
        assert!(by_env("WH_MQ_NATS_URLS").is_none());
        assert!(by_env("WH_DEDUPE_LEASE").is_some());
        assert!(by_env("WH_DEDUPE_LEASES").is_none());
    }
}
