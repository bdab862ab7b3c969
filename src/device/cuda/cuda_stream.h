// Streams and events of one CUDA device, as types. Everything that this project queues on a device goes to a stream
// that was handed to it: nothing uses the default stream, and nothing waits for the whole device.
#pragma once

struct CUstream_st;  // cudaStream_t and cudaEvent_t are pointers to these
struct CUevent_st;

namespace layercast {

class CudaStream;

// A place in a stream. A thread that waits for it polls for some tens of microseconds, and then sleeps until the device
// reports it, which wakes the thread about as much later. Meanwhile it leaves the core to threads that compute: most
// waits are for copies of megabytes. Move-only resource; thread-safe once recorded.
class CudaEvent {
 public:
  explicit CudaEvent(int device);
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  // Marks the place behind what is queued in the stream now, and forgets any place recorded before.
  void Record(const CudaStream& stream);
  // Waits until the stream has reached the place. An event that was never recorded counts as reached.
  void Synchronize() const;
  bool IsDone() const;

  int device() const { return device_; }

 private:
  int device_ = 0;
  CUevent_st* handle_ = nullptr;
};

// An ordered queue of work. It is never the default stream, and neither waits for that nor makes it wait. Move-only
// resource; one thread at a time.
class CudaStream {
 public:
  // Throws kUnsupported, saying why, if there is no such device.
  explicit CudaStream(int device);
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream();  // what is queued still runs

  // Waits until everything that is queued is done. Throws what went wrong in it.
  void Synchronize() const;

  int device() const { return device_; }
  CUstream_st* handle() const { return handle_; }

 private:
  int device_ = 0;
  CUstream_st* handle_ = nullptr;
};

}  // namespace layercast
