//! Which ClickHouse each tenant uses.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use wavehouse_core::TenantId;

use crate::catalog::{Catalog, CatalogOptions};
use crate::client::Client;
use crate::error::ClientError;
use crate::metrics::ClickHouseMetrics;
use crate::target::Target;

/// A client and what it knows of its database.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The tables of the target's database. Somebody must run it ([`Catalog::run`]).
    pub catalog: Catalog,
    name: Arc<str>,
}

impl Connection {
    /// Makes the client and an empty catalogue; dials nothing.
    ///
    /// # Errors
    /// [`ClientError`]: the target is not usable.
    pub fn new(
        target: Target,
        options: CatalogOptions,
        metrics: &ClickHouseMetrics,
    ) -> Result<Self, ClientError> {
        let name = target.name().into();
        let client = Client::new(target)?;
        let catalog = Catalog::new(client.clone(), options, metrics.clone());
        Ok(Self { client, catalog, name })
    }

    /// The target's name; see [`Target::name`].
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

/// The connections of all tenants. Cheap to clone; clones see the same.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    by_tenant: Arc<RwLock<HashMap<TenantId, Arc<Connection>>>>,
}

impl Targets {
    /// The connections of one tenant.
    #[must_use]
    pub fn one(tenant: TenantId, connection: Arc<Connection>) -> Self {
        let targets = Self::default();
        targets.set(tenant, Some(connection));
        targets
    }

    /// The connection of a tenant, if it has one.
    #[must_use]
    pub fn get(&self, tenant: &TenantId) -> Option<Arc<Connection>> {
        self.by_tenant.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    /// Gives a tenant another connection, or none. Requests that are under way end on the old one.
    pub fn set(&self, tenant: TenantId, connection: Option<Arc<Connection>>) {
        let mut map = self.by_tenant.write().unwrap_or_else(PoisonError::into_inner);
        match connection {
            Some(connection) => map.insert(tenant, connection),
            None => map.remove(&tenant),
        };
    }

    /// All tenants that have a connection, in order.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        let map = self.by_tenant.read().unwrap_or_else(PoisonError::into_inner);
        let mut tenants: Vec<TenantId> = map.keys().cloned().collect();
        tenants.sort();
        tenants
    }
}
