// The way from a call that queues a kernel to the kernel's body: for which types, with which access to memory, and for
// how many teams. This is host code, except for the few lines that bodies call.
#pragma once

#include <cstdint>
#include <string>

#include "layercast/error.h"
#include "src/device/kernels/cuda_matrix.h"
#include "src/device/kernels/team.cuh"

namespace layercast::cuda {

// The numbers of DType, which are part of the wire format. They are repeated here because layercast/dtype.h is C++20;
// tests compare them.
inline constexpr auto kDTypeF4 = static_cast<DType>(1);
inline constexpr auto kDTypeI8 = static_cast<DType>(5);
inline constexpr auto kDTypeF8E4M3 = static_cast<DType>(7);
inline constexpr auto kDTypeF8E8M0 = static_cast<DType>(8);
inline constexpr auto kDTypeF16 = static_cast<DType>(13);
inline constexpr auto kDTypeBF16 = static_cast<DType>(14);
inline constexpr auto kDTypeF32 = static_cast<DType>(17);
inline constexpr auto kDTypeF64 = static_cast<DType>(19);

// Calls body(Type{}) for the matrix's dtype.
template <class Body>
void ForType(DType dtype, const Body& body) {
  if (dtype == kDTypeBF16) return body(BF16{});
  if (dtype == kDTypeF16) return body(F16{});
  if (dtype == kDTypeF32) return body(F32{});
  throw Error(ErrorCode::kInvalidArgument,
              "CUDA kernels take weights of bf16, f16 or f32, got dtype " + std::to_string(static_cast<int>(dtype)));
}

// Calls body(T{}) for an unsigned type of so many bytes.
template <class Body>
void ForBytes(int element_bytes, const Body& body) {
  switch (element_bytes) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    case 8: return body(std::uint64_t{});
    default: throw Error(ErrorCode::kInternal, "elements of " + std::to_string(element_bytes) + " bytes");
  }
}

inline bool IsAligned(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

inline Source SourceOf(const CudaMatrix& matrix, CudaFaultWord* fault) {
  return {static_cast<const unsigned char*>(matrix.data),
          matrix.rows,
          matrix.cols,
          matrix.row_stride,
          matrix.first_row * matrix.cols,
          fault};
}

// A matrix as a source. Rows without gaps become one long row, for recipes to which rows mean nothing.
inline Source FlatSourceOf(const CudaMatrix& matrix, CudaFaultWord* fault) {
  Source source = SourceOf(matrix, fault);
  ForType(matrix.dtype, [&](auto type) {
    if (source.row_stride != source.cols * type.kBytes) return;
    source.cols *= source.rows;
    source.rows = 1;
    source.row_stride = 0;
  });
  return source;
}

// Calls body(Access{}) for the widest access that the weight and its values allow. A unit's values take `unit_bytes`.
template <class Body>
void ForAccess(DType dtype, const Source& source, const void* values, std::int64_t unit_bytes, const Body& body) {
  const bool whole = source.cols % kUnit == 0 && source.row_stride % 16 == 0 && IsAligned(source.data, 16) &&
                     IsAligned(values, unit_bytes < 16 ? unit_bytes : 16);
  ForType(dtype, [&](auto type) {
    using Type = decltype(type);
    if (whole) {
      body(Access<Type, true>{});
    } else {
      body(Access<Type, false>{});
    }
  });
}

// The following types say which row a team works on, and which part of it. This one is for rows that are cut into
// parts, one for each team.
struct RowParts {
  std::uint32_t of_row = 1;

  LAYERCAST_HOST_DEVICE std::int64_t RowOf(std::int64_t team) const {
    return static_cast<std::uint32_t>(team) / of_row;
  }
  LAYERCAST_HOST_DEVICE std::int64_t PartOf(std::int64_t team) const {
    return static_cast<std::uint32_t>(team) % of_row;
  }
};

// For a single row that is cut into parts, which needs no division and no multiplication by a row's number.
struct OneRowParts {
  LAYERCAST_HOST_DEVICE static std::int64_t RowOf(std::int64_t /*team*/) { return 0; }
  LAYERCAST_HOST_DEVICE static std::int64_t PartOf(std::int64_t team) { return team; }
};

// For one row for each team.
struct WholeRows {
  LAYERCAST_HOST_DEVICE static std::int64_t RowOf(std::int64_t team) { return team; }
  LAYERCAST_HOST_DEVICE static std::int64_t PartOf(std::int64_t /*team*/) { return 0; }
};

// Calls body(parts, number of teams) for parts of at most `units` units each. There is at least one team, because what
// is written once must be written for an empty weight too.
template <class Body>
void ForParts(const Source& source, std::int64_t units, const Body& body) {
  const std::int64_t of_row = (source.units() + units - 1) / units;
  const std::int64_t parts = of_row == 0 ? 1 : of_row;
  if (source.rows == 1) {
    body(OneRowParts{}, parts);
  } else {
    body(RowParts{static_cast<std::uint32_t>(parts)}, source.rows == 0 ? 1 : source.rows * parts);
  }
}

// Calls body(matrix) with matrices that, between them, lead to every variant of a kernel: of each type, with whole
// units or not, with rows that lie apart or a single row. There are no bytes behind them.
template <class Body>
void ForEveryWay(const Body& body) {
  constexpr std::int64_t kApart = 1024;
  for (const DType dtype : {kDTypeBF16, kDTypeF16, kDTypeF32}) {
    for (const std::int64_t rows : {1, 2}) {
      body(CudaMatrix{dtype, nullptr, rows, 4 * kUnit, kApart, 0});
      body(CudaMatrix{dtype, nullptr, rows, 4 * kUnit + 1, kApart, 0});
    }
  }
}

}  // namespace layercast::cuda
