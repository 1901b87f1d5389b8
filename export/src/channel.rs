//! Messages between the two processes of the exporter: each is one JSON document, and may carry files.
#![allow(unsafe_code)] // Tokio wants a promise about each descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Longest message, bytes; less than the buffer of a socket.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

/// Most files of a message: the kernel allows 253.
pub(crate) const MAX_FILES: usize = 64;

/// Why messages cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The system refuses it.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The other process sent something else than a message.
    #[error("not a message: {0}")]
    Message(String),
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// Returns two connected ends, which no other program inherits.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Returns the end that the process was started with, as its standard input.
///
/// # Errors
/// Fails if the process was started otherwise.
pub(crate) fn inherited() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if sockopt::socket_type(&stdin).ok() != Some(SocketType::SEQPACKET) {
        return Err(io::Error::other(
            "--process is for pmdscope export itself, which starts both processes; leave it out",
        ));
    }
    stdin.as_fd().try_clone_to_owned()
}

/// Sends a message.
///
/// # Errors
/// Fails if the other end is closed, the message is too long, or it cannot be sent now.
pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    let bytes = encode(message)?;
    Ok(send_bytes(socket, &bytes, files, SendFlags::empty())?)
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>, ChannelError> {
    let bytes =
        serde_json::to_vec(message).map_err(|error| ChannelError::Message(error.to_string()))?;
    if bytes.len() > MAX_MESSAGE {
        return Err(ChannelError::Message(format!("{} bytes are too long", bytes.len())));
    }
    Ok(bytes)
}

fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = files.len() <= MAX_FILES;
    let is_carried =
        files.is_empty() || fits && control.push(SendAncillaryMessage::ScmRights(files));
    if !is_carried {
        return Err(io::Error::other("more files than a message can carry"));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Waits for a message and its files; `None` if the other end is closed.
///
/// # Errors
/// Fails if what comes is no message of this type.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(T, Vec<OwnedFd>)>, ChannelError> {
    decode(receive_bytes(socket, RecvFlags::empty())?)
}

fn decode<T: DeserializeOwned>(
    (bytes, files): (Vec<u8>, Vec<OwnedFd>),
) -> Result<Option<(T, Vec<OwnedFd>)>, ChannelError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(&bytes) {
        Ok(message) => Ok(Some((message, files))),
        Err(error) => Err(ChannelError::Message(error.to_string())),
    }
}

fn receive_bytes(socket: impl AsFd, flags: RecvFlags) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags | RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message is too long"));
    }
    // A process with too many open files gets the message without its files, and goes on.
    bytes.truncate(received.bytes);
    Ok((bytes, files))
}

/// One end, for tasks.
#[derive(Debug)]
pub(crate) struct Channel(AsyncFd<OwnedFd>);

impl Channel {
    /// Takes an end; needs the runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // SAFETY: an `OwnedFd` is that of an open file until it is dropped, and nothing replaces it.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }

    /// Sends a message as soon as there is room for it.
    pub(crate) async fn send(
        &self,
        message: &impl Serialize,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), ChannelError> {
        let bytes = encode(message)?;
        let send =
            |socket: &OwnedFd| send_bytes(socket, &bytes, file.as_slice(), SendFlags::DONTWAIT);
        Ok(self.0.async_io(Interest::WRITABLE, send).await?)
    }

    /// Waits for a message with its file; `None` if the other end is closed.
    pub(crate) async fn receive<T: DeserializeOwned>(
        &self,
    ) -> Result<Option<(T, Option<OwnedFd>)>, ChannelError> {
        let receive = |socket: &OwnedFd| receive_bytes(socket, RecvFlags::DONTWAIT);
        let received = match self.0.async_io(Interest::READABLE, receive).await {
            // The other process has ended with unread messages.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            received => received?,
        };
        Ok(decode(received)?.map(|(message, files)| (message, files.into_iter().next())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::Document;
    use crate::message::{Answer, ToCollector};

    #[tokio::test]
    async fn messages_arrive_whole_with_their_files_until_the_end_is_closed() {
        let (one, other) = pair().unwrap();
        let (one, other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let document = Document::new(b"text").unwrap();
        one.send(&"first", None).await.unwrap();
        one.send(&"second", Some(document.descriptor())).await.unwrap();
        let (first, file) = other.receive::<String>().await.unwrap().unwrap();
        assert!(first == "first" && file.is_none());
        let (second, file) = other.receive::<String>().await.unwrap().unwrap();
        assert_eq!(second, "second");
        assert_eq!(Document::of(file.unwrap()).unwrap().read().unwrap(), b"text");
        assert!(one.send(&"x".repeat(MAX_MESSAGE), None).await.is_err());
        drop(one);
        assert!(other.receive::<String>().await.unwrap().is_none());
        assert!(other.send(&"late", None).await.is_err());
    }

    #[test]
    fn all_listeners_fit_and_more_are_an_error() {
        let (one, other) = pair().unwrap();
        let files = [one.as_fd(); MAX_FILES];
        send(&one, &0, &files).unwrap();
        assert_eq!(receive::<u8>(&other).unwrap().unwrap().1.len(), MAX_FILES);
        assert!(send(&one, &0, &[one.as_fd(); MAX_FILES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn other_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            let (one, other) = pair().unwrap();
            send_bytes(&one, &bytes, &[], SendFlags::empty()).unwrap();
            prop_assert!(receive::<ToCollector>(&other).is_err());
            send_bytes(&one, &bytes, &[], SendFlags::empty()).unwrap();
            prop_assert!(receive::<Answer>(&other).is_err());
        }
    }
}
