//! The reference page of the configuration, made from the table of keys: what `wavehouse config keys` prints. A test holds
//! the page in `docs/` against it.

use super::keys::{KEYS, Key, Kind, LONE_VARIABLES};
use super::values::show_bytes;

const HEAD: &str = "\
<!-- Made from crates/server/src/config/keys.rs; UPDATE_DOCS=1 cargo test -p wavehouse-server writes it anew. -->
# Configuration

Each key has a name in the file and a variable. What counts, from weak to strong: the default, the file, the variable,
`--set KEY=VALUE` on the command line. The file is `--config FILE`, else `WH_CONFIG`, else `./config.yaml` if there is
one. A dotted name is a block in the file:

```yaml
server:
  port: 8080
tenant:
  clickhouse:
    url: http://clickhouse:8123
```

- A variable that is set to nothing is set. A value that somebody wrote wins over the default even when it is `0`,
  `false` or `\"\"`.
- Names that are no key and `WH_` variables that are none are refused, all at once, with the nearest name. Variables that
  Kubernetes adds for services (`WH_…_SERVICE_HOST`, `WH_…_PORT=tcp://…`) are passed over.
- `wavehouse config check` tells what is wrong and starts nothing; `wavehouse config print` shows what is in effect and
  who set it, secrets masked. Both take `--dev` for what `wavehouse dev` would use.
- `wavehouse config keys` prints this page.
- The block `tenant` holds what belongs to tenant `0`, the only one in this version.
- Exit codes of the program: 0 clean, 1 failed, 64 wrong usage or configuration.

| key | variable | holds | default | what it does |
| --- | --- | --- | --- | --- |
";

/// The page.
pub(crate) fn page() -> String {
    let mut text = HEAD.to_owned();
    for key in KEYS {
        text.push_str(&format!(
            "| `{}` | `{}` | {} | {} | {} |\n",
            key.path,
            key.env,
            holds(key.kind),
            default(key),
            key.doc
        ));
    }
    text.push_str("\nVariables without a key:\n\n| variable | what it does |\n| --- | --- |\n");
    for (name, doc) in LONE_VARIABLES {
        text.push_str(&format!("| `{name}` | {doc} |\n"));
    }
    text
}

fn holds(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::AnyText => "text, may be blank".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Switch => "`true` or `false`".to_owned(),
        Kind::Whole { min, max } => format!("{min} to {max}"),
        Kind::Bytes { min, max: u64::MAX } => format!("bytes, such as `64MiB`; at least {}", show_bytes(min)),
        Kind::Bytes { min, max } => {
            format!("bytes, such as `8MiB`; {} to {}", show_bytes(min), show_bytes(max))
        }
        Kind::Span => "length of time, such as `250ms` or `1m30s`".to_owned(),
        Kind::List => "list; in the variable `a,b`".to_owned(),
        Kind::Map => "names with texts; in the variable `A=x,B=y`".to_owned(),
        Kind::Word(words, _) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Address => "IP address".to_owned(),
    }
}

fn default(key: &Key) -> String {
    let show = |text: &str| if text.is_empty() { "blank".to_owned() } else { format!("`{text}`") };
    let plain = key.default.map_or_else(|| "unset".to_owned(), show);
    match key.dev {
        Some(dev) => format!("{plain}; in `dev` {}", show(dev)),
        None => plain,
    }
}
