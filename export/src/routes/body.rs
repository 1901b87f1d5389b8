//! The body of a response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::document::DocumentBody;

/// A page that was made here, or one of the collector.
#[derive(Debug)]
pub(crate) enum PageBody {
    Short(Full<Bytes>),
    Document(DocumentBody),
}

impl From<Vec<u8>> for PageBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Short(Full::new(bytes.into()))
    }
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Short(bytes) => {
                let frame = Pin::new(bytes).poll_frame(context);
                frame.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
            Self::Document(document) => Pin::new(document).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Short(bytes) => bytes.is_end_stream(),
            Self::Document(document) => document.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Short(bytes) => bytes.size_hint(),
            Self::Document(document) => document.size_hint(),
        }
    }
}
