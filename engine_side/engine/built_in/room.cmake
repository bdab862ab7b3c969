# Their arithmetic is said operation by operation: what is fused is written so.
set_source_files_properties(${folder}/power.cc ${folder}/rope.cc PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
