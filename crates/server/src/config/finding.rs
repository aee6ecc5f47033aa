//! A finding: one thing in the configuration that a person must mend, with the way to mend it.

use std::fmt;

/// One thing to mend before the program can start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The key or variable, with where its value came from.
    pub(crate) subject: String,
    /// What was found.
    pub(crate) found: String,
    /// What was expected, or why what was found cannot be.
    pub(crate) expected: String,
    /// What to type.
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(
        subject: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { subject: subject.into(), found: found.into(), expected: expected.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.subject, self.found)?;
        writeln!(f, "     expected: {}", self.expected)?;
        write!(f, "     to mend:  {}", self.fix)
    }
}

/// Every finding, in the order of their subjects, as an operator reads them.
pub(crate) fn report(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort();
    let noun = if sorted.len() == 1 { "finding" } else { "findings" };
    let mut text = format!("the configuration has {} {noun}\n", sorted.len());
    for (index, finding) in sorted.iter().enumerate() {
        text.push_str(&format!("{:>3}. {finding}\n", index + 1));
    }
    text
}

/// The known name that a mistyped one most likely meant, if any is close.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 4).max(2);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many single-letter changes lie between two names.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        let mut next = vec![before];
        for (right, above) in b.bytes().zip(row.iter().skip(1)) {
            let cost = diagonal + usize::from(left != right);
            before = cost.min(above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, far) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("kitten", "sitting", 3), ("", "ab", 2)]
        {
            assert_eq!(distance(a, b), far, "{a} {b}");
        }
    }

    #[test]
    fn suggestions_are_close_or_absent() {
        let known = ["server.port", "server.listen", "data_dir"];
        assert_eq!(nearest("server.prot", known), Some("server.port"));
        assert_eq!(nearest("datadir", known), Some("data_dir"));
        assert_eq!(nearest("entirely_else", known), None);
    }
}
