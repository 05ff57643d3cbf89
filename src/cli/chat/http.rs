//! HTTP/1.1 without TLS: a request, and the lines of its answer as they come.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The URL is not one that is read.
    #[error("--url must be http://HOST:PORT, got {url:?}; put a proxy in front of a server that speaks TLS only")]
    Url {
        /// The URL.
        url: String,
    },
    /// No server answers there.
    #[error("{address} cannot be reached; start a server there, or give another --url")]
    Connect {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the answer of {address} broke off")]
    Broken {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The server refuses the request.
    #[error("{address} answers with status {status}: {message}")]
    Status {
        /// The address.
        address: String,
        /// The status.
        status: u16,
        /// What it says.
        message: String,
    },
}

/// A server that is reached by HTTP.
pub struct Endpoint {
    /// HOST:PORT.
    address: String,
    /// The path that all others follow, without a slash at its end.
    base: String,
    key: Option<String>,
}

/// Longest wait for the next bytes of an answer.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Most bytes of a line, of the head and of an answer that is not a stream.
const MOST: u64 = 16 << 20;

impl Endpoint {
    /// The server of a URL; `/v1` may be at its end.
    pub fn of(url: &str, key: Option<String>) -> Result<Endpoint, HttpError> {
        let wrong = || HttpError::Url { url: url.to_owned() };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (address, base) = rest.split_once('/').unwrap_or((rest, ""));
        let fits =
            !address.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()) && !rest.contains(['@', '?', '#']);
        if !fits {
            return Err(wrong());
        }
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { address.to_owned() } else { format!("{address}:80") };
        let base = base.trim_end_matches('/').trim_end_matches("v1").trim_end_matches('/');
        let base = if base.is_empty() { String::new() } else { format!("/{base}") };
        Ok(Endpoint { address, base, key })
    }

    /// Sends a request; none as its body is a GET. Gives the body of the answer.
    pub fn request(&self, path: &str, body: Option<&str>) -> Result<Box<dyn BufRead>, HttpError> {
        let connect = |source| HttpError::Connect { address: self.address.clone(), source };
        let stream = TcpStream::connect(&self.address).map_err(connect)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(connect)?;
        self.exchange(stream, path, body)
    }

    fn exchange(
        &self,
        mut stream: impl Read + Write + 'static,
        path: &str,
        body: Option<&str>,
    ) -> Result<Box<dyn BufRead>, HttpError> {
        stream.write_all(self.written(path, body).as_bytes()).map_err(|source| self.broken(source))?;
        let mut input = BufReader::new(stream);
        let (status, is_chunked) = head(&mut input).map_err(|source| self.broken(source))?;
        let mut body: Box<dyn BufRead> = if is_chunked {
            Box::new(BufReader::new(Chunks { input, left: 0, ended: false }))
        } else {
            Box::new(input)
        };
        if status == 200 {
            return Ok(body);
        }
        let mut text = String::new();
        (&mut body).take(MOST).read_to_string(&mut text).map_err(|source| self.broken(source))?;
        Err(HttpError::Status { address: self.address.clone(), status, message: message(&text) })
    }

    /// The error of a connection to it that broke.
    pub fn broken(&self, source: io::Error) -> HttpError {
        HttpError::Broken { address: self.address.clone(), source }
    }

    fn written(&self, path: &str, body: Option<&str>) -> String {
        let method = if body.is_some() { "POST" } else { "GET" };
        let key = self.key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let body = body.unwrap_or_default();
        format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n{key}\
             content-length: {}\r\n\r\n{body}",
            self.base,
            self.address,
            body.len()
        )
    }
}

/// The message of OpenAI's error object, or the text as it is.
fn message(text: &str) -> String {
    let object: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let message = object.as_ref().and_then(|object| object["error"]["message"].as_str());
    message.unwrap_or(text).trim().to_owned()
}

/// Reads a head: the status, and whether the body is in chunks.
fn head(input: &mut impl BufRead) -> io::Result<(u16, bool)> {
    let mut input = input.take(MOST);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not HTTP/1.1"))?;
    let mut is_chunked = false;
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => return Ok((status, is_chunked)),
            header => {
                let header = header.to_ascii_lowercase();
                is_chunked |= header.strip_prefix("transfer-encoding:").is_some_and(|how| how.trim() == "chunked");
            }
        }
    }
}

/// A body in chunks.
struct Chunks<R> {
    input: R,
    /// Bytes left of the chunk.
    left: usize,
    ended: bool,
}

impl<R: BufRead> Chunks<R> {
    /// Reads the size of the next chunk.
    fn begin(&mut self) -> io::Result<()> {
        let mut line = String::new();
        // The end of the chunk before is an empty line.
        while line.trim().is_empty() {
            line.clear();
            if self.input.by_ref().take(MOST).read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16);
        self.left = size.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.ended = self.left == 0;
        Ok(())
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.ended {
            self.begin()?;
        }
        let most = buffer.len().min(self.left);
        let read = self.input.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection to a server that says a given text.
    struct Canned {
        said: io::Cursor<Vec<u8>>,
    }

    impl Read for Canned {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // A byte at a time, as a slow network gives them.
            let most = buffer.len().min(1);
            self.said.read(&mut buffer[..most])
        }
    }

    impl Write for Canned {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn body(said: &str) -> Result<String, String> {
        let server = Endpoint::of("http://localhost", None).expect("a URL");
        let stream = Canned { said: io::Cursor::new(said.as_bytes().to_vec()) };
        let mut body = server.exchange(stream, "/", None).map_err(|error| error.to_string())?;
        let mut text = String::new();
        body.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn bodies_are_whole_or_in_chunks() {
        assert_eq!(body("HTTP/1.1 200 OK\r\n\r\nwhole"), Ok("whole".to_owned()));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\none\r\nA\r\n, two, thr\r\n2\r\nee\r\n0\r\n\r\n";
        assert_eq!(body(chunked), Ok("one, two, three".to_owned()));
        assert!(body(&chunked[..chunked.len() - 12]).is_err(), "a chunk is cut");
        assert!(body("SSH-2.0").is_err_and(|error| error.contains("broke off")));
        let refused = "HTTP/1.1 404 Not Found\r\n\r\n{\"error\": {\"message\": \"no such model\"}}";
        assert_eq!(body(refused), Err("localhost:80 answers with status 404: no such model".to_owned()));
    }

    #[test]
    fn a_url_is_an_address_and_perhaps_a_path() {
        for (url, address, base) in [
            ("http://a:8000", "a:8000", ""),
            ("http://a", "a:80", ""),
            ("http://a:1/v1/", "a:1", ""),
            ("http://a:1/b/v1", "a:1", "/b"),
            ("http://[::1]:8000", "[::1]:8000", ""),
        ] {
            let server = Endpoint::of(url, None).expect("a URL");
            assert_eq!((server.address.as_str(), server.base.as_str()), (address, base), "{url}");
        }
        for url in ["a:8000", "https://a", "http://", "http://a b", "http://me@a", "http://a\r\nx: y"] {
            assert!(matches!(Endpoint::of(url, None), Err(HttpError::Url { .. })), "{url:?}");
        }
    }
}
