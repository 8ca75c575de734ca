//! Schemas of types with their own serialization: texts in a certain format, and a retry policy
//! that may be a number.

use std::borrow::Cow;

use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, Object, ObjectBuilder};
use utoipa::openapi::{KnownFormat, OneOfBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::flow::{Flow, FlowReceipts};
use crate::job::Receipt;
use crate::session::WireHold;
use crate::submission::{Growth, RetryPolicy, Span, Submission};
use crate::time::Moment;

type Schemas = Vec<(String, RefOr<Schema>)>;

fn text(description: &str, example: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .examples([example])
}

impl PartialSchema for Moment {
    fn schema() -> RefOr<Schema> {
        let moment = text("A timestamp with its offset from UTC.", "2026-01-31T12:00:00Z");
        moment.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).into()
    }
}

impl ToSchema for Moment {
    fn name() -> Cow<'static, str> {
        "Moment".into()
    }
}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        text("A duration: 90s, 10m, 1h30m, 7d, 1.5s or PT90S; at most 49 days.", "90s").into()
    }
}

impl ToSchema for Span {
    fn name() -> Cow<'static, str> {
        "Span".into()
    }
}

impl PartialSchema for WireHold {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new()
            .items(number(u64::MAX))
            .min_items(Some(2))
            .max_items(Some(2))
            .description(Some("A job's number and the fencing token of its holder."))
            .examples([[7, 1]])
            .into()
    }
}

impl ToSchema for WireHold {
    fn name() -> Cow<'static, str> {
        "WireHold".into()
    }
}

fn number(most: u64) -> Object {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    // Bounds that JSON parsers cannot distinguish are left out.
    let most = u32::try_from(most).ok();
    number.maximum(most.map(u64::from)).build()
}

impl PartialSchema for RetryPolicy {
    fn schema() -> RefOr<Schema> {
        let object = ObjectBuilder::new()
            .property("max", number(u16::MAX.into()))
            .property("backoff", Growth::schema())
            .property("base", Span::schema())
            .property("cap", Span::schema())
            .property("factor_percent", number(u16::MAX.into()))
            .property("jitter_percent", number(100))
            .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
        OneOfBuilder::new()
            .item(number(u16::MAX.into()))
            .item(object)
            .description(Some(
                "The number of attempts, or an object with the number and the waits in between.",
            ))
            .into()
    }
}

impl ToSchema for RetryPolicy {
    fn name() -> Cow<'static, str> {
        "RetryPolicy".into()
    }
}

/// A map by names that the user chooses, in the order in which they were written.
fn by_name<T: ToSchema>(description: &str) -> ObjectBuilder {
    let reference = utoipa::openapi::Ref::from_schema_name(T::name());
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(reference))
        .description(Some(description))
}

impl PartialSchema for Flow {
    fn schema() -> RefOr<Schema> {
        let name = text("A display name.", "report");
        let jobs = by_name::<Submission>(
            "The jobs by name. `after` may name other jobs of this flow, or existing jobs by id.",
        );
        ObjectBuilder::new()
            .description(Some("Jobs that depend on one another, submitted all or none."))
            .property("name", name)
            .property("jobs", jobs)
            .required("name")
            .required("jobs")
            .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
            .into()
    }
}

impl ToSchema for Flow {
    fn name() -> Cow<'static, str> {
        "Flow".into()
    }

    fn schemas(schemas: &mut Schemas) {
        schemas.push((Submission::name().into(), Submission::schema()));
        Submission::schemas(schemas);
    }
}

impl PartialSchema for FlowReceipts {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .description(Some("The answer to a flow."))
            .property("name", ObjectBuilder::new().schema_type(Type::String))
            .property("jobs", by_name::<Receipt>("The jobs by their names in the flow."))
            .required("name")
            .required("jobs")
            .into()
    }
}

impl ToSchema for FlowReceipts {
    fn name() -> Cow<'static, str> {
        "FlowReceipts".into()
    }

    fn schemas(schemas: &mut Schemas) {
        schemas.push((Receipt::name().into(), Receipt::schema()));
        Receipt::schemas(schemas);
    }
}
