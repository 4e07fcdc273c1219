//! The page of the agent: the view of `pleg top` in a browser.
//!
//! It is one HTML document that loads nothing but `/debug/live`. Its headers forbid connections to other hosts. It
//! contains no data, so that a browser can load it without a token. Then its script asks the user for the token.
//!
//! The scripts and styles are separate files in this directory. The first request puts them into the document.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use ring::digest;

use crate::http::{self, Reply};

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// All scripts in one scope. The last one starts the page.
const SCRIPT: &str = concat!(
    "'use strict';\n{\n",
    include_str!("text.js"),
    include_str!("connection.js"),
    include_str!("node.js"),
    include_str!("pods.js"),
    include_str!("detail.js"),
    include_str!("feed.js"),
    include_str!("main.js"),
    "}\n",
);

static PAGE: LazyLock<(Bytes, String)> = LazyLock::new(|| {
    let html = DOCUMENT.replacen("/* page.css */", STYLE, 1);
    let html = html.replacen("/* page.js */", SCRIPT, 1);
    // The policy allows only this script and this style, so markup in a name cannot become a script.
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    (html.into(), policy)
});

/// The hash of a text, as a source in a content security policy.
fn hash(text: &str) -> String {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    format!("sha256-{}", BASE64_STANDARD.encode(hash))
}

pub(crate) fn reply() -> Reply {
    let opener_policy = HeaderName::from_static("cross-origin-opener-policy");
    let (html, policy) = &*PAGE;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (opener_policy, "same-origin"),
        // `http::reply` panics on an invalid value. This one is valid: the policy is ASCII, and its hashes are base64.
        (CONTENT_SECURITY_POLICY, policy),
    ];
    http::reply(StatusCode::OK, &headers, html.clone())
}
