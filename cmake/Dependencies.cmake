# Everything outside, as imported targets. A missing optional one is said in one line.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)  # what spdlog formats with
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(cppzmq REQUIRED)
find_package(hwy REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)  # SHA-256 of signed versions
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)  # regular expressions that cannot hang
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET GLOBAL libsodium)  # keys; libzmq has CURVE by it too
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET GLOBAL libzstd)  # the entropy stage of deltas
find_package(ZLIB REQUIRED)  # crc-32 of the records of torch.save
find_path(LAYERCAST_XXHASH_INCLUDE xxhash.h REQUIRED)

add_library(layercast_xxhash INTERFACE)
target_include_directories(layercast_xxhash SYSTEM INTERFACE ${LAYERCAST_XXHASH_INCLUDE})

include(Ucx)    # layercast::ucx, LAYERCAST_HAVE_UCX
include(Http)   # PkgConfig::HTTPLIB, LAYERCAST_HAVE_HTTPLIB
include(Prometheus)  # layercast::prometheus, LAYERCAST_HAVE_PROMETHEUS
include(Torch)  # layercast::libtorch, LAYERCAST_HAVE_TORCH
include(Cuda)   # LAYERCAST_HAVE_CUDA
include(Nccl)   # layercast::nccl_header, LAYERCAST_HAVE_NCCL
