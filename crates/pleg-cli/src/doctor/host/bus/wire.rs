//! The little of the D-Bus protocol that is needed to ask systemd for its version.
//!
//! A library would serve, but no other message is ever sent, and what matters is the serial number in the
//! header of the answer. The bus forwards messages with the serial number of their sender.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// The most bytes of a message.
const MOST_BYTES: usize = 1 << 16;
/// The most messages that are read until the answer. A bus sends one other, NameAcquired.
const MOST_MESSAGES: usize = 16;
/// The most bytes of a line of the authentication.
const MOST_LINE: u64 = 4096;

const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Kinds of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// What systemd answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) version: String,
    pub(super) serial: u32,
}

/// Asks systemd for its version.
pub(super) async fn version(stream: UnixStream) -> io::Result<Answer> {
    let mut stream = BufReader::new(stream);
    // The empty identity stands for the user of this process, whom the kernel names to the bus.
    stream.write_all(b"\0AUTH EXTERNAL\r\n").await?;
    expect(&mut stream, "DATA").await?;
    stream.write_all(b"DATA\r\n").await?;
    expect(&mut stream, "OK").await?;
    stream.write_all(b"BEGIN\r\n").await?;
    let bus = "org.freedesktop.DBus";
    let hello = call(1, bus, "/org/freedesktop/DBus", bus, "Hello", &[]);
    stream.write_all(&hello).await?;
    reply(&mut stream, 1).await?;
    let arguments = ["org.freedesktop.systemd1.Manager", "Version"];
    let get = call(
        2,
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.DBus.Properties",
        "Get",
        &arguments,
    );
    stream.write_all(&get).await?;
    let message = reply(&mut stream, 2).await?;
    let version = message.body().variant_string().ok_or_else(malformed)?;
    Ok(Answer {
        // It is shown and recorded.
        version: version.chars().take(64).collect(),
        serial: message.serial,
    })
}

/// Reads a line that must begin with this word.
async fn expect(stream: &mut BufReader<UnixStream>, word: &str) -> io::Result<()> {
    let mut line = Vec::new();
    stream.take(MOST_LINE).read_until(b'\n', &mut line).await?;
    if line.starts_with(word.as_bytes()) {
        return Ok(());
    }
    let why = if line.is_empty() {
        "the bus closed the connection"
    } else {
        "the bus denies access"
    };
    Err(io::Error::other(why))
}

/// The answer to the call with this serial number.
async fn reply(stream: &mut BufReader<UnixStream>, to: u32) -> io::Result<Message> {
    for _ in 0..MOST_MESSAGES {
        let message = Message::read(stream).await?;
        match (message.kind, message.reply_to) {
            (METHOD_RETURN, Some(serial)) if serial == to => return Ok(message),
            (ERROR, Some(serial)) if serial == to => return Err(io::Error::other(message.error)),
            _ => {}
        }
    }
    Err(io::Error::other("the bus sent other messages only"))
}

fn malformed() -> io::Error {
    io::Error::other("the bus sent a malformed message")
}

/// A method call with arguments that are strings.
fn call(
    serial: u32,
    destination: &str,
    path: &str,
    interface: &str,
    member: &str,
    arguments: &[&str],
) -> Vec<u8> {
    let mut body = Writer::default();
    for argument in arguments {
        body.string(argument);
    }
    let mut fields = Writer::default();
    for (field, kind, value) in [
        (PATH, "o", path),
        (INTERFACE, "s", interface),
        (MEMBER, "s", member),
        (DESTINATION, "s", destination),
    ] {
        fields.pad(8);
        fields.0.push(field);
        fields.signature(kind);
        fields.string(value);
    }
    if !arguments.is_empty() {
        fields.pad(8);
        fields.0.push(SIGNATURE);
        fields.signature("g");
        fields.signature(&"s".repeat(arguments.len()));
    }
    // Little endian, method call, no flags, version 1.
    let mut message = Writer(vec![b'l', 1, 0, 1]);
    message.number(length(&body.0));
    message.number(serial);
    message.number(length(&fields.0));
    message.0.extend(fields.0);
    message.pad(8);
    message.0.extend(body.0);
    message.0
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn pad(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.pad(4);
        self.0.extend(number.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.number(length(text.as_bytes()));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// The signatures here are a few characters long.
    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }
}

/// A message that was received.
struct Message {
    kind: u8,
    serial: u32,
    reply_to: Option<u32>,
    error: String,
    big_endian: bool,
    body: Vec<u8>,
}

impl Message {
    async fn read(stream: &mut BufReader<UnixStream>) -> io::Result<Self> {
        let mut head = [0; 16];
        stream.read_exact(&mut head).await?;
        let big_endian = head[0] == b'B';
        let mut numbers = Reader {
            bytes: &head,
            at: 4,
            big_endian,
        };
        let mut number = || numbers.number().ok_or_else(malformed);
        let (body, serial, fields) = (number()?, number()?, number()?);
        let [body, fields] = [body, fields].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if head[3] != 1 || body > MOST_BYTES || fields > MOST_BYTES {
            return Err(malformed());
        }
        // The fields begin at 16, which is aligned.
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        stream.read_exact(&mut rest).await?;
        let body = rest.split_off(fields.next_multiple_of(8));
        rest.truncate(fields);
        let mut message = Self {
            kind: head[1],
            serial,
            reply_to: None,
            error: String::new(),
            big_endian,
            body,
        };
        message.read_fields(&rest).ok_or_else(malformed)?;
        Ok(message)
    }

    fn read_fields(&mut self, fields: &[u8]) -> Option<()> {
        let mut reader = Reader {
            bytes: fields,
            at: 0,
            big_endian: self.big_endian,
        };
        while reader.at < fields.len() {
            reader.pad(8)?;
            let field = reader.byte()?;
            let signature = reader.signature()?;
            match (field, signature) {
                (REPLY_SERIAL, "u") => self.reply_to = Some(reader.number()?),
                (ERROR_NAME, "s") => reader.string()?.clone_into(&mut self.error),
                (_, "s" | "o") => drop(reader.string()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u") => drop(reader.number()?),
                _ => return None,
            }
        }
        Some(())
    }

    fn body(&self) -> Reader<'_> {
        Reader {
            bytes: &self.body,
            at: 0,
            big_endian: self.big_endian,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn pad(&mut self, to: usize) -> Option<()> {
        self.at = self.at.next_multiple_of(to);
        (self.at <= self.bytes.len()).then_some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.pad(4)?;
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// Text of this length and the zero after it.
    fn text(&mut self, length: usize) -> Option<&'a str> {
        let text = self.take(length)?;
        self.take(1)?;
        std::str::from_utf8(text).ok()
    }

    fn string(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        self.text(length)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let length = self.byte()?;
        self.text(usize::from(length))
    }

    fn variant_string(&mut self) -> Option<&'a str> {
        match self.signature()? {
            "s" => self.string(),
            _ => None,
        }
    }
}
