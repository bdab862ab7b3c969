// Shared libraries that a test takes for libnccl: LAYERCAST_FAKE_VERSION is what they say they are; one lacks a
// function.
#define LAYERCAST_FAKE_FUNCTION(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 5; }

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = LAYERCAST_FAKE_VERSION;
  return 0;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int /*result*/) { return "fake"; }
LAYERCAST_FAKE_FUNCTION(ncclGetUniqueId)
LAYERCAST_FAKE_FUNCTION(ncclCommInitRankConfig)
LAYERCAST_FAKE_FUNCTION(ncclCommGetAsyncError)
#ifndef LAYERCAST_FAKE_WITHOUT_ABORT
LAYERCAST_FAKE_FUNCTION(ncclCommAbort)
#endif
LAYERCAST_FAKE_FUNCTION(ncclGroupStart)
LAYERCAST_FAKE_FUNCTION(ncclGroupEnd)
LAYERCAST_FAKE_FUNCTION(ncclSend)
LAYERCAST_FAKE_FUNCTION(ncclRecv)
LAYERCAST_FAKE_FUNCTION(ncclBroadcast)
