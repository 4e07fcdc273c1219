//! List responses: complete or in pages, within the runtime's message limit, with the configured faults.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use pleg_cri::v1;
use prost::Message;
use tonic::{Response, Status, codegen::BoxStream};

use crate::{engine::Engine, knobs::Value};

type Annotations = BTreeMap<String, String>;

impl Engine {
    /// The sandboxes that match the filter, with the configured faults.
    pub(crate) fn sandbox_rows(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let filter = filter.filter(|_| !self.faults().is_on("list.unfiltered"));
        let rows = self.world().sandbox_rows(filter);
        self.apply_list_faults(rows, |row| &mut row.annotations)
    }

    /// The containers that match the filter, with the configured faults.
    pub(crate) fn container_rows(&self, filter: Option<v1::ContainerFilter>) -> Vec<v1::Container> {
        let filter = filter.filter(|_| !self.faults().is_on("list.unfiltered"));
        let rows = self.world().container_rows(filter);
        let mut rows = self.apply_list_faults(rows, |row| &mut row.annotations);
        let more = self.faults().value("list.fill", Value::number);
        let only_id = |n: usize| v1::Container {
            id: n.to_string(),
            ..Default::default()
        };
        rows.extend((0..more.unwrap_or(0)).map(only_id));
        rows
    }

    fn apply_list_faults<R>(
        &self,
        mut rows: Vec<R>,
        annotations: fn(&mut R) -> &mut Annotations,
    ) -> Vec<R> {
        if self.faults().fires("list.empty") {
            rows.clear();
        }
        self.pad("list.pad", rows.iter_mut().map(annotations));
        rows
    }

    /// If `knob` (`list.pad`, `status.pad`) is on, adds an annotation of the knob's size to each map in `all`.
    pub(crate) fn pad<'a>(&self, knob: &str, all: impl IntoIterator<Item = &'a mut Annotations>) {
        if let Some(bytes) = self.faults().value(knob, Value::number) {
            for annotations in all {
                annotations.insert("pleg-sim/pad".to_owned(), "x".repeat(bytes));
            }
        }
    }

    pub(crate) fn single<M: Message>(&self, response: M) -> Result<Response<M>, Status> {
        self.check_limit(&response)?;
        Ok(Response::new(response))
    }

    /// The number of items per page of a streaming list. Fails if the runtime has no streaming lists. Call this before
    /// `sandbox_rows` or `container_rows`, because a runtime without streaming lists visits no item.
    pub(crate) fn page_size(&self, method: &str) -> Result<usize, Status> {
        let size = self.profile.list_page_size;
        let size = size.filter(|_| !self.faults().is_on("list.unimplemented"));
        let size = size.ok_or_else(|| {
            let message = format!("unknown method {method} for service runtime.v1.RuntimeService");
            Status::unimplemented(message)
        })?;
        let page = self.faults().value("list.page", Value::number);
        Ok(page.unwrap_or(size))
    }

    /// A list in pages of `size` items. An empty list has no page.
    pub(crate) fn pages<R: Clone, P: Message + 'static>(
        &self,
        size: usize,
        rows: Vec<R>,
        page: impl Fn(Vec<R>) -> P,
    ) -> Result<Response<BoxStream<P>>, Status> {
        let pages = rows.chunks(size.max(1)).map(|rows| {
            let page = page(rows.to_vec());
            self.check_limit(&page).map(|()| page)
        });
        let mut pages: Vec<_> = pages.collect();
        let mut faults = self.faults();
        if faults.fires("list.empty_page") {
            pages.insert(0, Ok(page(Vec::new())));
        }
        let breaks = |value: Value| value.number().filter(|n| *n <= pages.len());
        if let Some(count) = faults.value("list.break_after", breaks) {
            pages.truncate(count);
            pages.push(Err(Status::internal("injected fault: this list fails")));
        }
        Ok(Response::new(stream::iter(pages).boxed()))
    }

    fn check_limit(&self, message: &impl Message) -> Result<(), Status> {
        let mut faults = self.faults();
        let limit = faults.get("list.limit").and_then(Value::number);
        let checked = check_size(message, limit.unwrap_or(self.profile.message_limit));
        if limit.is_some() && checked.is_err() {
            faults.count("list.limit");
        }
        checked
    }
}

/// Fails if the message is larger than `limit`, with the error of grpc-go, which all real runtimes use.
pub(crate) fn check_size(message: &impl Message, limit: usize) -> Result<(), Status> {
    let size = message.encoded_len();
    if size <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "grpc: trying to send message larger than max ({size} vs. {limit})"
    )))
}
