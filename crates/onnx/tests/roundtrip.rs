//! Encoding and decoding keep every field of the schema.
//!
//! The literals below have no `..Default::default()`: a field added to the schema does not compile until it is
//! set here.

use bytes::Bytes;
use prost::Message;
use tilewright_onnx::proto::*;

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn entry(key: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: text(key), value: text("value") }
}

fn shape() -> TensorShapeProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |value| Dimension { value, denotation: text("DATA_BATCH") };
    TensorShapeProto {
        dim: vec![dim(Some(Value::DimValue(3))), dim(Some(Value::DimParam("n".into()))), dim(None)],
    }
}

fn types() -> Vec<TypeProto> {
    use type_proto::{Map, Opaque, Optional, Sequence, SparseTensor, Tensor, Value};
    let ty = |value| TypeProto { value: Some(value), denotation: text("IMAGE") };
    let tensor = ty(Value::TensorType(Tensor { elem_type: Some(1), shape: Some(shape()) }));
    let inner = || Some(Box::new(tensor.clone()));
    vec![
        ty(Value::SequenceType(Box::new(Sequence { elem_type: inner() }))),
        ty(Value::MapType(Box::new(Map { key_type: Some(7), value_type: inner() }))),
        ty(Value::OptionalType(Box::new(Optional { elem_type: inner() }))),
        ty(Value::SparseTensorType(SparseTensor { elem_type: Some(1), shape: Some(shape()) })),
        ty(Value::OpaqueType(Opaque { domain: text("d"), name: text("n") })),
        tensor.clone(),
    ]
}

fn tensor() -> TensorProto {
    TensorProto {
        dims: vec![2, -1],
        data_type: Some(tensor_proto::DataType::Float as i32),
        segment: Some(tensor_proto::Segment { begin: Some(1), end: Some(2) }),
        float_data: vec![1.5, f32::NEG_INFINITY],
        int32_data: vec![-1, i32::MAX],
        string_data: vec![Bytes::from_static(b"\xff\x00"), Bytes::new()],
        int64_data: vec![i64::MIN],
        name: text("weight"),
        doc_string: text("doc"),
        raw_data: Some(Bytes::from_static(b"raw")),
        external_data: vec![entry("location")],
        data_location: Some(tensor_proto::DataLocation::External as i32),
        double_data: vec![0.1],
        uint64_data: vec![u64::MAX],
        metadata_props: vec![entry("m")],
    }
}

fn sparse() -> SparseTensorProto {
    SparseTensorProto { values: Some(tensor()), indices: Some(tensor()), dims: vec![4, 5] }
}

fn info(ty: TypeProto) -> ValueInfoProto {
    ValueInfoProto {
        name: text("v"),
        r#type: Some(ty),
        doc_string: text("doc"),
        metadata_props: vec![entry("m")],
    }
}

fn attribute(graph: Option<GraphProto>) -> AttributeProto {
    AttributeProto {
        name: text("a"),
        ref_attr_name: text("outer"),
        doc_string: text("doc"),
        r#type: Some(attribute_proto::AttributeType::Graphs as i32),
        f: Some(0.25),
        i: Some(-7),
        s: Some(Bytes::from_static(b"s")),
        t: Some(tensor()),
        g: graph.clone(),
        sparse_tensor: Some(sparse()),
        tp: types().pop(),
        floats: vec![1.0, 2.0],
        ints: vec![1, -2],
        strings: vec![Bytes::from_static(b"x")],
        tensors: vec![tensor()],
        graphs: graph.into_iter().collect(),
        sparse_tensors: vec![sparse()],
        type_protos: types(),
    }
}

fn node(graph: Option<GraphProto>) -> NodeProto {
    use simple_sharded_dim_proto::Dim;
    let sharding = |dim| SimpleShardedDimProto { dim: Some(dim), num_shards: Some(2) };
    let simple_sharding = vec![sharding(Dim::DimValue(8)), sharding(Dim::DimParam("n".into()))];
    let spec = ShardingSpecProto {
        tensor_name: text("t"),
        device: vec![0, 1],
        index_to_device_group_map: vec![IntIntListEntryProto { key: Some(1), value: vec![2, 3] }],
        sharded_dim: vec![ShardedDimProto { axis: Some(1), simple_sharding }],
    };
    NodeProto {
        input: vec!["x".into(), String::new(), "y".into()],
        output: vec!["z".into()],
        name: text("node"),
        op_type: text("If"),
        domain: text("domain"),
        overload: text("overload"),
        attribute: vec![attribute(graph)],
        doc_string: text("doc"),
        metadata_props: vec![entry("m")],
        device_configurations: vec![NodeDeviceConfigurationProto {
            configuration_id: text("c"),
            sharding_spec: vec![spec],
            pipeline_stage: Some(3),
        }],
    }
}

fn graph(inner: Option<GraphProto>) -> GraphProto {
    GraphProto {
        node: vec![node(inner)],
        name: text("graph"),
        initializer: vec![tensor()],
        sparse_initializer: vec![sparse()],
        doc_string: text("doc"),
        input: types().into_iter().map(info).collect(),
        output: types().into_iter().map(info).collect(),
        value_info: types().into_iter().map(info).collect(),
        quantization_annotation: vec![TensorAnnotation {
            tensor_name: text("t"),
            quant_parameter_tensor_names: vec![entry("SCALE_TENSOR")],
        }],
        metadata_props: vec![entry("m")],
    }
}

fn full_model() -> ModelProto {
    let opset = || OperatorSetIdProto { domain: text("ai.onnx"), version: Some(28) };
    ModelProto {
        ir_version: Some(MAX_IR_VERSION),
        opset_import: vec![opset()],
        producer_name: text("producer"),
        producer_version: text("1"),
        domain: text("domain"),
        model_version: Some(9),
        doc_string: text("doc"),
        graph: Some(graph(Some(graph(None)))),
        metadata_props: vec![entry("m")],
        training_info: vec![TrainingInfoProto {
            initialization: Some(graph(None)),
            algorithm: Some(graph(None)),
            initialization_binding: vec![entry("i")],
            update_binding: vec![entry("u")],
        }],
        functions: vec![FunctionProto {
            name: text("f"),
            input: vec!["x".into()],
            output: vec!["y".into()],
            attribute: vec!["alpha".into()],
            attribute_proto: vec![attribute(None)],
            node: vec![node(None)],
            doc_string: text("doc"),
            opset_import: vec![opset()],
            domain: text("domain"),
            overload: text("overload"),
            value_info: types().into_iter().map(info).collect(),
            metadata_props: vec![entry("m")],
        }],
        configuration: vec![DeviceConfigurationProto {
            name: text("c"),
            num_devices: Some(2),
            device: vec!["gpu".into()],
        }],
    }
}

#[test]
fn every_field_survives() {
    let model = full_model();
    let bytes = model.encode_to_vec();
    let again = ModelProto::decode(Bytes::from(bytes.clone())).unwrap();
    assert_eq!(again, model);
    assert_eq!(again.encode_to_vec(), bytes);
}

#[test]
fn values_of_test_data_survive() {
    let map = MapProto {
        name: text("m"),
        key_type: Some(7),
        keys: vec![1, 2],
        string_keys: vec![Bytes::from_static(b"k")],
        values: None,
    };
    let optional = |value: Option<TensorProto>| OptionalProto {
        name: text("o"),
        elem_type: Some(1),
        tensor_value: value,
        sparse_tensor_value: Some(sparse()),
        sequence_value: None,
        map_value: Some(map.clone()),
        optional_value: None,
    };
    let sequence = SequenceProto {
        name: text("s"),
        elem_type: Some(1),
        tensor_values: vec![tensor()],
        sparse_tensor_values: vec![sparse()],
        sequence_values: vec![SequenceProto { tensor_values: vec![tensor()], ..SequenceProto::default() }],
        map_values: vec![MapProto { values: Some(SequenceProto::default()), ..map.clone() }],
        optional_values: vec![optional(Some(tensor()))],
    };
    let again = SequenceProto::decode(Bytes::from(sequence.encode_to_vec())).unwrap();
    assert_eq!(again, sequence);
}

#[test]
fn raw_data_is_not_copied() {
    let bytes = Bytes::from(full_model().encode_to_vec());
    let model = ModelProto::decode(bytes.clone()).unwrap();
    let raw = model.graph.unwrap().initializer[0].raw_data.clone().unwrap();
    let whole = bytes.as_ptr_range();
    assert!(whole.contains(&raw.as_ptr()), "raw_data lies outside the buffer it was decoded from");
}
