"""Messages of proto/gecli/pb/flow_model.proto. Written by proto/generate.py; do not edit."""
from gecli.pb.descriptors import load

FILE = load(
    b'\n\x19gecli/pb/flow_model.proto\x12\x13gecli.pb.flow_model"9\n\x0cFlowModelDef\x12\x12\n\nmode'
    b'l_name\x18\x01 \x01(\t\x12\x15\n\rsubmodel_name\x18\x03 \x03(\t"\xb5\x01\n\x0bSubmodelDef\x12\x12\n\nmodel_name\x18\x01 \x01(\t\x12'
    b'\x12\n\nmodel_type\x18\x02 \x01(\t\x12\x0f\n\x07om_data\x18\x03 \x01(\x0c\x12\x19\n\x11om_data_file_path\x18\t \x01(\t\x12\x16\n\x0eis_bu'
    b'iltin_udf\x18\n \x01(\x08\x12\x1c\n\x13om_data_file_offset\x18\x99u \x03(\x04\x12\x1c\n\x13om_data_file_length\x18\x9au '
    b'\x03(\x04b\x06proto3'
)
globals().update(FILE.messages)
__all__ = ['FlowModelDef', 'SubmodelDef']
