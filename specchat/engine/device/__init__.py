"""GPU step: static buffers, lengths on the device, captured graphs, one copy to the host a step."""
