# leaf_digest_avx2.cc is chosen at run time (leaf_digest.h), and empty where the processor has no such instructions. Its
# flags are not for what is beside it in a unity build.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mavx2 LAYERCAST_COMPILES_AVX2)
set_source_files_properties(${folder}/leaf_digest_avx2.cc PROPERTIES
  COMPILE_OPTIONS "$<$<BOOL:${LAYERCAST_COMPILES_AVX2}>:-mavx2>" SKIP_UNITY_BUILD_INCLUSION ON)
