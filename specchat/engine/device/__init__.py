"""The step on a GPU: static buffers, lengths on the device, captured graphs, one copy to the host a step."""
