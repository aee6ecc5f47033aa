//! Values whose type the server finds by itself, in `JSON` and `Dynamic` columns: what it finds must be what was written.
//! It refuses numbers and keys that its own parser cannot hold, and some that it takes come back as others.

use std::borrow::Cow;

use super::{Why, decode};
use crate::scan::{Cursor, NumberKind, Syntax, Token};

/// Deeper values are not looked into, so that none can exhaust the stack; records nest no deeper by default.
const LOOK_DEPTH_MAX: usize = 256;

/// The column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Paths with types of their own.
    Json,
    /// One type for the whole value: objects become named tuples.
    Dynamic,
}

/// What matters of a value: its containers and keys.
enum Node<'a> {
    Text,
    Number,
    Bool,
    Null,
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, [u8]>, Node<'a>)>),
}

/// Whether the server stores `value`, a whole JSON value of right grammar, as it is written.
pub(super) fn check(value: &[u8], kind: Kind) -> Result<(), Why> {
    let mut reader =
        Reader { cursor: Cursor::new(value, usize::MAX, false), kind, flaw: None, has_points: false };
    // The grammar was checked before, so there is no syntax error to tell of; `None` is a value that is too deep.
    let Ok(Some(root)) = reader.node(LOOK_DEPTH_MAX) else { return Ok(()) };
    if let Some(why) = reader.flaw {
        return Err(why);
    }
    if reader.has_points && has_path_twice(&root) {
        return Err(Why::KeyTwice);
    }
    match kind {
        Kind::Json if has_null_beside(&root) => Err(Why::NullBeside),
        Kind::Json => Ok(()),
        Kind::Dynamic => share_a_type(&[&root], false),
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    kind: Kind,
    flaw: Option<Why>,
    /// Some key has a point in it.
    has_points: bool,
}

impl<'a> Reader<'a> {
    fn node(&mut self, depth: usize) -> Result<Option<Node<'a>>, Syntax> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
        match self.cursor.token()? {
            Token::Object => self.object(depth),
            Token::Array => self.array(depth),
            Token::Number(number) => {
                let held = match (number.kind, number.magnitude) {
                    (NumberKind::Whole, Some(magnitude)) => !number.negative || magnitude <= 1 << 63,
                    _ => holds(number.raw, number.kind),
                };
                if !held {
                    self.flaw.get_or_insert(Why::Range);
                }
                Ok(Some(Node::Number))
            }
            Token::Null => Ok(Some(Node::Null)),
            Token::Text(_) => Ok(Some(Node::Text)),
            Token::Bool(_) => Ok(Some(Node::Bool)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Option<Node<'a>>, Syntax> {
        self.cursor.enter()?;
        let mut items = Vec::new();
        if !self.cursor.is_empty(b']') {
            loop {
                let Some(item) = self.node(depth)? else { return Ok(None) };
                items.push(item);
                if !self.cursor.goes_on(b']')? {
                    break;
                }
            }
        }
        Ok(Some(Node::Array(items)))
    }

    /// Its pairs are sorted by key.
    fn object(&mut self, depth: usize) -> Result<Option<Node<'a>>, Syntax> {
        self.cursor.enter()?;
        let mut pairs = Vec::new();
        if !self.cursor.is_empty(b'}') {
            loop {
                let key = self.cursor.key()?;
                let name = if key.escaped { Cow::Owned(decode(key.raw)) } else { Cow::Borrowed(key.raw) };
                self.has_points |= memchr::memchr(b'.', &name).is_some();
                if self.kind == Kind::Dynamic && key.escaped {
                    self.flaw.get_or_insert(Why::KeyEscaped);
                }
                if self.kind == Kind::Dynamic && name.is_empty() {
                    self.flaw.get_or_insert(Why::KeyEmpty);
                }
                let Some(value) = self.node(depth)? else { return Ok(None) };
                pairs.push((name, value));
                if !self.cursor.goes_on(b'}')? {
                    break;
                }
            }
        }
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            self.flaw.get_or_insert(Why::KeyTwice);
        }
        Ok(Some(Node::Object(pairs)))
    }
}

/// Whether the server's JSON parser holds the number: whole ones in 64 bits, others as a finite Float64.
fn holds(raw: &[u8], kind: NumberKind) -> bool {
    let Ok(text) = std::str::from_utf8(raw) else { return false };
    match kind {
        NumberKind::Whole => text.parse::<u64>().is_ok(),
        NumberKind::Fraction | NumberKind::Exponent => text.parse::<f64>().is_ok_and(f64::is_finite),
    }
}

/// Whether two keys spell one path, as `a.b` beside `a` with a `b` in it. Each object of an array has paths of its own.
fn has_path_twice(node: &Node<'_>) -> bool {
    let mut paths = Vec::new();
    let twice = gather(node, &[], &mut paths);
    paths.sort_unstable();
    twice || paths.windows(2).any(|pair| pair[0] == pair[1])
}

/// Adds the paths below `node`; tells whether some array holds an object with a path twice.
fn gather(node: &Node<'_>, prefix: &[u8], paths: &mut Vec<Vec<u8>>) -> bool {
    match node {
        Node::Text | Node::Number | Node::Bool | Node::Null => false,
        Node::Array(items) => items.iter().any(has_path_twice),
        Node::Object(pairs) => pairs.iter().any(|(key, value)| {
            let path = [prefix, key].concat();
            let twice = gather(value, &[&path, &b"."[..]].concat(), paths);
            paths.push(path);
            twice
        }),
    }
}

/// Whether in some array null stands beside arrays or objects: it would come back as an empty one.
fn has_null_beside(node: &Node<'_>) -> bool {
    match node {
        Node::Text | Node::Number | Node::Bool | Node::Null => false,
        Node::Object(pairs) => pairs.iter().any(|pair| has_null_beside(&pair.1)),
        Node::Array(items) => {
            let is_container = |node: &Node<'_>| matches!(node, Node::Array(_) | Node::Object(_));
            let nulls = items.iter().any(|item| matches!(item, Node::Null));
            nulls && items.iter().any(is_container) || items.iter().any(has_null_beside)
        }
    }
}

/// Whether values can share a type with nothing made up: where objects have different keys, or null stands beside
/// arrays or objects, the server would fill in zeros. All elements of an array share a type, and so do the values of one
/// key of several objects; those must be of one `kind`, or the server refuses them.
fn share_a_type(nodes: &[&Node<'_>], of_one_kind: bool) -> Result<(), Why> {
    let (mut items, mut objects) = (Vec::new(), Vec::new());
    let (mut nulls, mut containers) = (false, false);
    for node in nodes {
        match node {
            Node::Text | Node::Number | Node::Bool => {}
            Node::Null => nulls = true,
            Node::Array(inner) => {
                containers = true;
                items.extend(inner);
            }
            Node::Object(pairs) => {
                containers = true;
                objects.push(pairs);
            }
        }
    }
    if nulls && containers {
        return Err(Why::NullBeside);
    }
    let mut kinds =
        nodes.iter().filter(|node| !matches!(node, Node::Null)).map(|node| std::mem::discriminant(*node));
    let first = kinds.next();
    if of_one_kind && kinds.any(|kind| Some(kind) != first) {
        return Err(Why::KeysDiffer);
    }
    // An empty object has no type of its own, which the server does not always get over.
    if objects.iter().any(|pairs| pairs.is_empty()) && nodes.len() > objects.len() {
        return Err(Why::KeysDiffer);
    }
    if !items.is_empty() {
        share_a_type(&items, of_one_kind)?;
    }
    let Some((first, others)) = objects.split_first() else { return Ok(()) };
    let same = |other: &&Vec<(Cow<'_, [u8]>, Node<'_>)>| {
        other.len() == first.len() && other.iter().zip(first.iter()).all(|(a, b)| a.0 == b.0)
    };
    if !others.iter().all(same) {
        return Err(Why::KeysDiffer);
    }
    (0..first.len()).try_for_each(|at| {
        let values: Vec<_> = objects.iter().filter_map(|pairs| pairs.get(at)).map(|pair| &pair.1).collect();
        share_a_type(&values, of_one_kind || !others.is_empty())
    })
}
