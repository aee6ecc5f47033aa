//! Whose request it is, and what its query string says.

use http::HeaderMap;
use wavehouse_core::TenantId;

use crate::error::ApiError;

/// Most parameters that a query string may have.
const PARAMETERS_MAX: usize = 64;

/// The decoded parameters of a query string, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=1&b=2`; `+` is a space.
    ///
    /// # Errors
    /// A `%` that two hex digits do not follow, text that is not UTF-8, `;`, or too many parameters.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for pair in text.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(ApiError::QueryString(format!("more than {PARAMETERS_MAX} parameters")));
            }
            if pair.contains(';') {
                return Err(ApiError::QueryString("';' separates nothing here, use '&'".to_owned()));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self(pairs))
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on: `?strict`, `?strict=true` and `?strict=1` are.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), Some("" | "true" | "1"))
    }
}

fn decode(text: &str) -> Result<String, ApiError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(ApiError::QueryString(format!("a '%' without two hex digits in {text:?}")));
                };
                u8::try_from(high * 16 + low).unwrap_or_default()
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| ApiError::QueryString(format!("{text:?} is not UTF-8")))
}

/// The tenant of a data route: `X-Tenant-ID`, or `0` when it is absent or empty.
///
/// # Errors
/// A header that is sent twice or is no tenant id; a tenant that is not served.
pub(crate) fn of_header(headers: &HeaderMap, served: &TenantId) -> Result<TenantId, ApiError> {
    let mut values = headers.get_all("x-tenant-id").iter();
    let Some(value) = values.next() else { return known(TenantId::default(), served) };
    if values.next().is_some() {
        return Err(ApiError::TenantHeader("the header was sent twice".to_owned()));
    }
    let text = value.to_str().map_err(|_| ApiError::TenantHeader("it is not ASCII".to_owned()))?.trim();
    if text.is_empty() {
        return known(TenantId::default(), served);
    }
    known(TenantId::parse(text).map_err(|error| ApiError::TenantHeader(error.to_string()))?, served)
}

/// The tenant of an operator route: `?tenant=`, or `0` when it is absent.
///
/// # Errors
/// A parameter that is empty, repeated or no tenant id; a tenant that is not served.
pub(crate) fn of_query(query: &Query, served: &TenantId) -> Result<TenantId, ApiError> {
    let mut values = query.all("tenant");
    let Some(text) = values.next() else { return known(TenantId::default(), served) };
    if values.next().is_some() {
        return Err(ApiError::TenantParameter("it was given twice".to_owned()));
    }
    known(TenantId::parse(text).map_err(|error| ApiError::TenantParameter(error.to_string()))?, served)
}

fn known(tenant: TenantId, served: &TenantId) -> Result<TenantId, ApiError> {
    if tenant == *served { Ok(tenant) } else { Err(ApiError::UnknownTenant(tenant.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded() {
        let query = Query::parse(Some("table=page%20views&x=a+b&strict")).unwrap();
        assert_eq!(query.get("table"), Some("page views"));
        assert_eq!(query.get("x"), Some("a b"));
        assert!(query.is_on("strict"));
        assert!(!query.is_on("other"));
        assert_eq!(Query::parse(None), Ok(Query::default()));
        for bad in ["a=%", "a=%g0", "a=%ff", "a=1;b=2"] {
            assert!(matches!(Query::parse(Some(bad)), Err(ApiError::QueryString(_))), "{bad}");
        }
    }

    #[test]
    fn the_header_decides_on_data_routes() {
        let served = TenantId::default();
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-tenant-id", value.parse().unwrap());
            }
            of_header(&headers, &served).map(|tenant| tenant.to_string())
        };
        assert_eq!(of(&[]), Ok("0".into()));
        assert_eq!(of(&[""]), Ok("0".into()));
        assert_eq!(of(&["0"]), Ok("0".into()));
        assert_eq!(of(&["acme"]), Err(ApiError::UnknownTenant("acme".into())));
        assert!(matches!(of(&["a.b"]), Err(ApiError::TenantHeader(_))));
        assert!(matches!(of(&["0", "0"]), Err(ApiError::TenantHeader(_))));
    }

    #[test]
    fn the_parameter_decides_on_operator_routes() {
        let served = TenantId::default();
        let of = |text: &str| of_query(&Query::parse(Some(text)).unwrap(), &served).map(|t| t.to_string());
        assert_eq!(of(""), Ok("0".into()));
        assert_eq!(of("tenant=0"), Ok("0".into()));
        assert_eq!(of("tenant=acme"), Err(ApiError::UnknownTenant("acme".into())));
        assert!(matches!(of("tenant="), Err(ApiError::TenantParameter(_))));
        assert!(matches!(of("tenant=0&tenant=0"), Err(ApiError::TenantParameter(_))));
    }
}
