//! Requests that show the credential of whoever makes them, and not the connection's own.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Request};

use super::Connection;
use crate::upstream::connector::Connector;
use crate::upstream::live::LiveClient;
use crate::upstream::tls::{self, ALPN_LIVE};
use crate::upstream::{BoxError, RequestBody, UpstreamError};

/// Marks a request of a caller's.
#[derive(Clone, Copy)]
struct OfCaller;

impl Connection {
    /// [`Self::request`], with a caller's `Authorization` in the place of the connection's own. It is sent without the
    /// connection's client certificate, too: the server would take that for the caller.
    pub fn request_of_caller(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
        authorization: HeaderValue,
    ) -> Request<RequestBody> {
        let mut request = self.request(method, path_and_query, headers, body);
        request.headers_mut().insert(AUTHORIZATION, authorization);
        request.extensions_mut().insert(OfCaller);
        request
    }

    /// The client that may send it.
    pub(super) fn client_for(
        &self,
        request: &Request<RequestBody>,
    ) -> Result<Arc<LiveClient>, UpstreamError> {
        let of_caller = request.extensions().get::<OfCaller>().is_some();
        if of_caller && !self.endpoint.config().is_tls() {
            let why = "a caller's token is not sent over plain http";
            return Err(UpstreamError::Connect(why.into()));
        }
        // Also where the proxy has no certificate now: it may have one a moment later, or had one a moment ago.
        let client = match of_caller {
            true => self.without_certificate().map_err(UpstreamError::Connect)?,
            false => self.live.load_full(),
        };
        client.ok_or_else(|| UpstreamError::Connect("the connection is closed".into()))
    }

    fn without_certificate(&self) -> Result<Option<Arc<LiveClient>>, BoxError> {
        if let Some(client) = self.callers.load_full() {
            return Ok(Some(client));
        }
        let endpoint = self.endpoint.tls()?;
        let tls = tls::client_config(&endpoint, None, ALPN_LIVE)?;
        let endpoint = self.endpoint.config();
        let connector = Connector::new(endpoint, tls, None, self.connect_timeout, None)?;
        let client = Arc::new(LiveClient::new(connector));
        self.callers.store(Some(Arc::clone(&client)));
        // A close that came before takes no notice of what is stored now; one that comes after does.
        if self.live.load().is_none() {
            self.callers.store(None);
            return Ok(None);
        }
        Ok(Some(client))
    }
}
