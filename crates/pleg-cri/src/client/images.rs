//! Image calls. No pod's status shows the images of the node, so callers need not wait for a newer status.

use futures::FutureExt as _;
use pleg_runtime::core::CallError;

use super::CriClient;
use crate::error::malformed;
use crate::metrics::Operation;
use crate::v1;

impl CriClient {
    /// `ImageStatus`: the image, or `None` if it is not on the node.
    ///
    /// # Errors
    /// `Malformed` if the image has no id or no size, as in the kubelet; otherwise the error of the failed call.
    pub async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CallError> {
        let operation = Operation::IMAGE_STATUS;
        let name = image.image.clone();
        let request = v1::ImageStatusRequest {
            image: Some(image),
            verbose: false,
        };
        let mut client = self.connection.images();
        let call = client.image_status(request).boxed();
        let response = self.read(operation, &name, self.deadline(), call).await?;
        match response.image {
            Some(image) if image.id.is_empty() || image.size == 0 => {
                Err(malformed(operation, "the image has no id or no size"))
            }
            image => Ok(image),
        }
    }

    /// `ListImages`: all images of the node.
    ///
    /// # Errors
    /// Any failure of the call.
    pub async fn list_images(&self) -> Result<Vec<v1::Image>, CallError> {
        let mut client = self.connection.images();
        let call = client.list_images(v1::ListImagesRequest::default()).boxed();
        self.read(Operation::LIST_IMAGES, "", self.deadline(), call)
            .await
            .map(|response| response.images)
    }

    /// `PullImage`: pulls an image and returns its reference, which a container's configuration may
    /// name. `sandbox` is the configuration of the sandbox that needs the image.
    ///
    /// The deadline is [`pull_deadline`](crate::CriConfig::pull_deadline). Dropping the future cancels the pull.
    ///
    /// # Errors
    /// `Malformed` if the response has no reference, as in the kubelet; otherwise the error of the failed call.
    pub async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        let operation = Operation::PULL_IMAGE;
        let name = image.image.clone();
        let request = v1::PullImageRequest {
            image: Some(image),
            auth,
            sandbox_config: sandbox,
        };
        let mut client = self.connection.images();
        let call = client.pull_image(request).boxed();
        let deadline = self.config().pull_deadline;
        let response = self.read(operation, &name, deadline, call).await?;
        if response.image_ref.is_empty() {
            return Err(malformed(operation, "the response has no image reference"));
        }
        Ok(response.image_ref)
    }

    /// `RemoveImage`: removes an image. Also succeeds if the image is not on the node.
    ///
    /// # Errors
    /// Any failure of the call.
    pub async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), CallError> {
        let name = image.image.clone();
        let request = v1::RemoveImageRequest { image: Some(image) };
        let mut client = self.connection.images();
        let call = client.remove_image(request).boxed();
        self.read(Operation::REMOVE_IMAGE, &name, self.deadline(), call)
            .await
            .map(drop)
    }

    /// `ImageFsInfo`: the usage of the file systems that hold images and containers.
    ///
    /// # Errors
    /// Any failure of the call.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CallError> {
        let mut client = self.connection.images();
        let call = client.image_fs_info(v1::ImageFsInfoRequest {}).boxed();
        self.read(Operation::IMAGE_FS_INFO, "", self.deadline(), call)
            .await
    }
}
