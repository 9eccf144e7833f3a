"""A model in the form of TensorRT-LLM's backend (llmapi): each response has the whole text so far."""

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()

            def given(name, request=request):
                tensor = pb.get_input_tensor_by_name(request, name)
                return None if tensor is None else tensor.as_numpy()

            stop = given("sampling_param_stop")
            words = ["One", " two", " three", " four", " five", " six"][: given("sampling_param_max_tokens")[0]]
            if stop is not None and b" five" in stop.tolist():
                words = words[:4]
            steps = [words[at : at + 2] for at in range(0, len(words), 2)]
            text, accepted = "", 0
            for at, step in enumerate(steps):
                text, accepted = text + "".join(step), accepted + len(step) - 1
                tensors = {
                    "text_output": np.array([text.encode()], dtype=np.object_),
                    "finish_reason": np.array([b"length" if at == len(steps) - 1 else b"None"], dtype=np.object_),
                    "first_token_time_ns": np.array([1_700_000_000_000_000_000], dtype=np.int64),
                    "acceptance_rate": np.array([accepted / (3 * (at + 1))], dtype=np.float32),
                    "total_accepted_draft_tokens": np.array([accepted], dtype=np.int32),
                    "total_draft_tokens": np.array([3 * (at + 1)], dtype=np.int32),
                }
                sender.send(pb.InferenceResponse([pb.Tensor(name, value) for name, value in tensors.items()]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
