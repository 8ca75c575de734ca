//! The OpenAPI document, generated from the routes and their types.

use axum::extract::State as Given;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use filch_api::job::Details;
use filch_api::problem::Problem;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
    ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::State;
use super::rights::{self, Who};

/// The document without its routes.
pub(crate) fn beginning() -> OpenApi {
    let info = InfoBuilder::new()
        .title("filch")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A durable job scheduler with work stealing. Bodies are JSON; errors are \
             `application/problem+json` with a stable `code`.",
        ))
        .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").build()));
    OpenApiBuilder::new().info(info.build()).build()
}

/// Completes the document with facts about all routes.
pub(crate) fn finish(mut document: OpenApi) -> String {
    let components = document.components.get_or_insert_default();
    // These schemas are not collected automatically: refusals are not part of any route, and the
    // details of a job are flattened into it.
    let mut schemas = vec![
        (Problem::name().into_owned(), Problem::schema()),
        (Details::name().into_owned(), Details::schema()),
    ];
    Details::schemas(&mut schemas);
    components.schemas.extend(schemas);
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let refusal = ResponseBuilder::new()
        .description("The request was refused and nothing has changed; `code` is the reason.")
        .content("application/problem+json", content)
        .build();
    components.responses.insert("Refusal".into(), refusal.into());
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A filch access token. Not needed until the first token is created."))
        .build();
    components.security_schemes.insert(BEARER.into(), SecurityScheme::Http(scheme).into());
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            secure(operation);
            let responses = &mut operation.responses.responses;
            for response in responses.values_mut() {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    // The standard requires a description of each response.
                    response.description = operation.summary.clone().unwrap_or_default();
                }
            }
            let refusal = RefOr::Ref(Ref::from_response_name("Refusal"));
            responses.insert("default".into(), refusal);
        }
    }
    let mut text = document.to_pretty_json().expect("the document can be written as JSON");
    text.push('\n');
    text
}

/// Documents which roles may use an operation.
fn secure(operation: &mut Operation) {
    let name = operation.operation_id.as_deref().unwrap_or_default();
    let words = match rights::who(name) {
        Who::Everybody => {
            operation.security = Some(vec![SecurityRequirement::default()]);
            "No token required.".to_owned()
        }
        Who::Bearers => {
            operation.security = Some(vec![SecurityRequirement::new(BEARER, NO_SCOPES)]);
            "Requires a token (any role).".to_owned()
        }
        Who::Roles(roles) => {
            let words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
            operation.security = Some(vec![SecurityRequirement::new(BEARER, NO_SCOPES)]);
            format!("Requires a token with the role {}.", words.join(" or "))
        }
    };
    let description = operation.description.get_or_insert_default();
    if !description.is_empty() {
        description.push_str("\n\n");
    }
    description.push_str(&words);
}

/// The name of the security scheme in the document.
const BEARER: &str = "token";

const NO_SCOPES: [&str; 0] = [];

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, patch, .. } = item;
    [get, put, post, patch].into_iter().flatten()
}

/// The OpenAPI document
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "server",
    responses((status = 200, body = Object))
)]
pub(crate) async fn show(Given(state): Given<State>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, state.document.to_string()).into_response()
}

/// The schemas of the workers' WebSocket frames
///
/// JSON Schema 2020-12: `UpFrame` is sent by workers, `DownFrame` by the server.
#[utoipa::path(
    get,
    path = "/worker-protocol.json",
    operation_id = "workerProtocol",
    tag = "server",
    responses((status = 200, body = Object))
)]
pub(crate) async fn show_worker_protocol() -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, filch_api::frame_schema::worker_protocol()).into_response()
}
