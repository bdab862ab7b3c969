// What calls of the runtime begin with.
#pragma once

#include "tests/simulated_cuda/simulated_context.h"
#include "tests/simulated_cuda/simulated_stream.h"

namespace simulated_cuda {

// For calls that work in the thread's context: `work` is done there, unless the context has failed.
template <class Work>
cudaError_t InContext(const Work& work) {
  Context& context = Entered();
  const cudaError_t failed = context.failed;
  return Say(failed != cudaSuccess ? failed : work(context));
}

// For those that no capture can hold.
template <class Work>
cudaError_t OutsideCaptures(const Work& work) {
  return InContext(
      [&](Context& context) { return DisturbsNoCapture() ? work(context) : cudaErrorStreamCaptureUnsupported; });
}

// For those on a stream, which must be of the thread's context, and not the default one.
template <class Work>
cudaError_t OnStream(CUstream_st* stream, const Work& work) {
  return InContext([&](Context& context) {
    const bool suits = stream != nullptr && &stream->context() == &context;
    return suits ? work() : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace simulated_cuda
