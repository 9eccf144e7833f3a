"""A model in the form of vLLM's backend: it repeats its prompt's words, two a step, behind some reasoning."""

import json

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            prompt = pb.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            parameters = json.loads(pb.get_input_tensor_by_name(request, "sampling_parameters").as_numpy()[0])
            words = [f" {word}" for word in prompt.split()][: parameters["max_tokens"]]
            if "forever" in prompt:
                words = [" again"] * parameters["max_tokens"]
            if "fail" in prompt:
                error = pb.TritonError("the model failed")
                sender.send(pb.InferenceResponse(error=error), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            pieces = ["<think>", "Well.", "</think>\n\n"] * ("think" in prompt)
            pieces += ["".join(words[at : at + 2]) for at in range(0, len(words), 2)]
            for at, piece in enumerate(pieces):
                if sender.is_cancelled():
                    break
                ends = "length" if at == len(pieces) - 1 else "None"
                tensors = {
                    "text_output": np.array([piece.encode()], dtype=np.object_),
                    "finish_reason": np.array([ends.encode()], dtype=np.object_),
                    "num_input_tokens": np.array([len(prompt.split())], dtype=np.uint32),
                    "num_output_tokens": np.array([len(piece.split())], dtype=np.uint32),
                }
                sender.send(pb.InferenceResponse([pb.Tensor(name, value) for name, value in tensors.items()]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
