//! Cuts ClickHouse SQL into tokens, just far enough to find clauses outside strings, names and comments.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bare word or number.
    Word,
    /// A quoted name: `"a"` or `` `a` ``.
    Name,
    /// A string: `'a'` or `$tag$a$tag$`.
    Text,
    /// One other character.
    Sign(u8),
}

/// A token's kind and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    /// Whether this is the bare word `word`, in any case.
    pub(crate) fn is(&self, text: &[u8], word: &str) -> bool {
        self.kind == Kind::Word && text[self.start..self.end].eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Tokens of a text, comments and blanks left out. A string without an end runs to the end of the text.
pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of `text`.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn skip_past(&mut self, end: &[u8]) {
        let rest = self.rest();
        self.at += rest.windows(end.len()).position(|part| part == end).map_or(rest.len(), |n| n + end.len());
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.rest() {
                [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..] => self.at += 1,
                [b'-', b'-', ..] | [b'#', b' ' | b'!', ..] => self.skip_past(b"\n"),
                [b'/', b'*', ..] => {
                    self.at += 2;
                    self.skip_past(b"*/");
                }
                _ => return,
            }
        }
    }

    fn skip_quoted(&mut self, quote: u8) {
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                _ if byte == quote => {
                    if self.text.get(self.at) != Some(&quote) {
                        return;
                    }
                    self.at += 1;
                }
                _ => {}
            }
        }
        self.at = self.text.len();
    }

    /// The whole opening `$tag$`, when there is one here.
    fn heredoc(&self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let tag = rest.get(1..)?.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))?;
        (rest[tag + 1] == b'$').then(|| &rest[..tag + 2])
    }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blanks();
        let start = self.at;
        let kind = match *self.rest().first()? {
            quote @ b'\'' => {
                self.skip_quoted(quote);
                Kind::Text
            }
            quote @ (b'"' | b'`') => {
                self.skip_quoted(quote);
                Kind::Name
            }
            b'$' if self.heredoc().is_some() => {
                let tag = self.heredoc().unwrap_or_default();
                self.at += tag.len();
                self.skip_past(tag);
                Kind::Text
            }
            byte if in_word(byte) => {
                self.at += self.rest().iter().position(|&next| !in_word(next)).unwrap_or(self.rest().len());
                Kind::Word
            }
            byte => {
                self.at += 1;
                Kind::Sign(byte)
            }
        };
        Some(Token { kind, start, end: self.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<&str> {
        Lexer::new(text.as_bytes()).map(|token| &text[token.start..token.end]).collect()
    }

    #[test]
    fn cuts_strings_names_heredocs_and_comments() {
        let cases: [(&str, &[&str]); 8] = [
            ("select 1", &["select", "1"]),
            ("a -- b\nc /* d */ e # f\n g #h", &["a", "c", "e", "g", "#", "h"]),
            (r"'it''s' 'a\'b' x", &["'it''s'", r"'a\'b'", "x"]),
            (r#""a""b" `c\`d`"#, &[r#""a""b""#, r"`c\`d`"]),
            ("$x$ FORMAT $x$ y", &["$x$ FORMAT $x$", "y"]),
            ("'never ends ; x", &["'never ends ; x"]),
            ("ünïcode+1", &["ünïcode", "+", "1"]),
            ("'\\", &["'\\"]),
        ];
        for (text, want) in cases {
            assert_eq!(tokens(text), want, "{text}");
        }
    }
}
