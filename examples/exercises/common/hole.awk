# Makes the stub of an exercise from its solution: awk -f hole.awk solution.h > answer.h
# Lines from "// [hole] text" to "// [end]" become todo("text"), or go where there is no text.
/\/\/ \[hole\]/ {
  match($0, /[^ ]/)
  indent = substr($0, 1, RSTART - 1)
  text = $0
  sub(/.*\/\/ \[hole\] ?/, "", text)
  if (text != "") print indent "todo(\"" text "\");"
  hole = 1
  next
}
/\/\/ \[end\]/ { hole = 0; next }
!hole
