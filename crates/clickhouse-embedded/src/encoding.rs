//! Content encodings: request bodies are undone as they are read, results are encoded as they are sent.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::fault::Fault;

/// Levels: results are sent once, so speed comes before size.
const ZSTD_LEVEL: i32 = 1;

/// An encoding both sides can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Zstd,
    Lz4,
}

impl Coding {
    /// Its name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        [Self::Zstd, Self::Gzip, Self::Lz4, Self::Deflate]
            .into_iter()
            .find(|coding| coding.name().eq_ignore_ascii_case(name))
    }
}

/// The encoding of a request body.
pub(crate) fn of_body(content_encoding: Option<&str>) -> Result<Option<Coding>, Fault> {
    match content_encoding.map(str::trim) {
        None | Some("" | "identity") => Ok(None),
        Some(name) => match Coding::by_name(name.strip_prefix("x-").unwrap_or(name)) {
            Some(coding) => Ok(Some(coding)),
            None => Err(Fault::unsupported(&format!(
                "the content encoding '{name}' (it takes gzip, deflate, zstd, lz4)"
            ))),
        },
    }
}

/// The best encoding that the client accepts: zstd, then gzip, lz4, deflate.
pub(crate) fn of_answer(accept_encoding: Option<&str>) -> Option<Coding> {
    let accepted: Vec<&str> = accept_encoding?
        .split(',')
        .filter_map(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, ""));
            let refused = matches!(weight.trim().replace(' ', "").as_str(), "q=0" | "q=0.0");
            (!refused).then(|| name.trim())
        })
        .collect();
    [Coding::Zstd, Coding::Gzip, Coding::Lz4, Coding::Deflate]
        .into_iter()
        .find(|coding| accepted.iter().any(|name| coding.name().eq_ignore_ascii_case(name)))
}

/// Reads a body with its encoding undone.
pub(crate) fn reader(
    body: impl Read + Send + 'static,
    coding: Option<Coding>,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match coding {
        None => Box::new(body),
        Some(Coding::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(body)),
        Some(Coding::Deflate) => Box::new(flate2::read::ZlibDecoder::new(body)),
        Some(Coding::Zstd) => Box::new(zstd::stream::read::Decoder::new(body)?),
        Some(Coding::Lz4) => Box::new(Lz4Frames(lz4_flex::frame::FrameDecoder::new(body))),
    })
}

/// Reads LZ4 frames one after the other: the decoder ends at each, and goes on when it is asked again.
struct Lz4Frames<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => self.0.read(buffer),
            bytes => Ok(bytes),
        }
    }
}

/// Encodes a result piece by piece.
pub(crate) enum Encoder {
    Plain,
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Lz4(lz4_flex::frame::FrameEncoder<Vec<u8>>),
}

impl Encoder {
    /// An encoder for one result.
    pub(crate) fn new(coding: Option<Coding>) -> io::Result<Self> {
        let level = flate2::Compression::fast();
        Ok(match coding {
            None => Self::Plain,
            Some(Coding::Gzip) => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), level)),
            Some(Coding::Deflate) => Self::Deflate(flate2::write::ZlibEncoder::new(Vec::new(), level)),
            Some(Coding::Zstd) => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?),
            Some(Coding::Lz4) => Self::Lz4(lz4_flex::frame::FrameEncoder::new(Vec::new())),
        })
    }

    /// Encodes `piece` and hands out what is ready, so that a slow query's rows do not wait for the next.
    pub(crate) fn piece(&mut self, piece: Bytes) -> io::Result<Bytes> {
        fn through(encoder: &mut impl Write, piece: &Bytes) -> io::Result<()> {
            encoder.write_all(piece)?;
            encoder.flush()
        }
        Ok(match self {
            Self::Plain => piece,
            Self::Gzip(encoder) => {
                through(encoder, &piece)?;
                std::mem::take(encoder.get_mut()).into()
            }
            Self::Deflate(encoder) => {
                through(encoder, &piece)?;
                std::mem::take(encoder.get_mut()).into()
            }
            Self::Zstd(encoder) => {
                through(encoder, &piece)?;
                std::mem::take(encoder.get_mut()).into()
            }
            Self::Lz4(encoder) => {
                through(encoder, &piece)?;
                std::mem::take(encoder.get_mut()).into()
            }
        })
    }

    /// The encoding's last bytes.
    pub(crate) fn finish(&mut self) -> io::Result<Bytes> {
        Ok(match std::mem::replace(self, Self::Plain) {
            Self::Plain => Bytes::new(),
            Self::Gzip(encoder) => encoder.finish()?.into(),
            Self::Deflate(encoder) => encoder.finish()?.into(),
            Self::Zstd(encoder) => encoder.finish()?.into(),
            Self::Lz4(encoder) => encoder.finish().map_err(io::Error::other)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_encodings() {
        assert_eq!(of_answer(Some("lz4,zstd,gzip,deflate")), Some(Coding::Zstd));
        assert_eq!(of_answer(Some("gzip;q=1.0, br")), Some(Coding::Gzip));
        assert_eq!(of_answer(Some("gzip;q=0, deflate")), Some(Coding::Deflate));
        assert_eq!(of_answer(Some("br, *")), None);
        assert_eq!(of_answer(None), None);
        assert_eq!(of_body(Some("x-gzip")), Ok(Some(Coding::Gzip)));
        assert_eq!(of_body(Some("identity")), Ok(None));
        assert_eq!(of_body(Some("br")).unwrap_err().code, 48);
    }

    #[test]
    fn every_encoding_survives_the_way_there_and_back() {
        let pieces: Vec<Bytes> = (0..50_u8).map(|n| Bytes::from(vec![n; 7_000])).collect();
        for coding in [None, Some(Coding::Gzip), Some(Coding::Deflate), Some(Coding::Zstd), Some(Coding::Lz4)]
        {
            let mut encoder = Encoder::new(coding).unwrap();
            let mut wire = Vec::new();
            for piece in &pieces {
                wire.extend_from_slice(&encoder.piece(piece.clone()).unwrap());
            }
            wire.extend_from_slice(&encoder.finish().unwrap());
            let mut back = Vec::new();
            reader(io::Cursor::new(wire), coding).unwrap().read_to_end(&mut back).unwrap();
            assert!(back == pieces.concat(), "{coding:?}");
        }
    }

    #[test]
    fn bodies_of_several_frames_are_read_to_their_end() {
        for coding in [Coding::Gzip, Coding::Zstd, Coding::Lz4] {
            let mut wire = Vec::new();
            for word in ["one ", "two ", "three"] {
                let mut encoder = Encoder::new(Some(coding)).unwrap();
                wire.extend_from_slice(&encoder.piece(Bytes::from_static(word.as_bytes())).unwrap());
                wire.extend_from_slice(&encoder.finish().unwrap());
            }
            let mut back = String::new();
            reader(io::Cursor::new(wire), Some(coding)).unwrap().read_to_string(&mut back).unwrap();
            assert_eq!(back, "one two three", "{coding:?}");
        }
    }
}
