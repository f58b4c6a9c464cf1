//! ONNX: protobuf schema, external data, import to and export from the graph IR.
