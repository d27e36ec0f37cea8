# Finds, or downloads and unpacks, a data set that is published as one tar archive; cifar10_data.sh and stl10_data.sh
# set the variables and read this file. Options: --data DIR, --mirror URL.

data=
say() { echo "${0##*/}: $*" >&2; }

while [ $# -gt 0 ]; do
  case $1 in
    --data) data=${2:?--data needs a folder}; shift 2 ;;
    --mirror) mirrors=("${2:?--mirror needs a URL}"); shift 2 ;;
    *) say "unknown argument '$1'"; exit 2 ;;
  esac
done

holds_data() {
  local file
  for file in "${needed[@]}"; do
    [ -f "$1/$file" ] || return 1
  done
}

for place in "$data" "${GRADUS_DATA:-}" data ../shared/data; do
  [ -n "$place" ] || continue
  for candidate in "$place" "$place/$folder"; do
    if holds_data "$candidate"; then
      realpath "$candidate"
      exit 0
    fi
  done
  [ "$place" != "$data" ] || say "no $name files in $data; looking elsewhere"
  if [ -x "$place/unpack.sh" ]; then
    say "$name is packed in $place. Unpack it, then try again:  $place/unpack.sh data"
    exit 1
  fi
done

command -v curl > /dev/null || scripts/install_dependencies.sh download || true

# The archive is checked and unpacked aside, so an interrupted download leaves nothing in data/$folder.
mkdir -p data
part=$(mktemp -d "data/$folder.part.XXXXXX")
trap 'rm -rf "$part"' EXIT
fetch() {
  local url=${1%/}/$archive sum
  if ! curl --fail --silent --show-error --location --connect-timeout 10 --max-time 7200 --output "$part/$archive" \
      "$url" 2> "$part/error"; then
    say "$url: $(tail -1 "$part/error")"
    return 1
  fi
  sum=$(md5sum < "$part/$archive")
  sum=${sum%% *}
  if [ "$sum" != "$md5" ]; then
    say "$url is damaged or not $name: its MD5 sum is $sum, not $md5"
    return 1
  fi
}
for mirror in "${mirrors[@]}"; do
  say "downloading $name ($size) from $mirror"
  if fetch "$mirror"; then
    tar -xzf "$part/$archive" -C "$part" "${members[@]}"
    mkdir -p "data/$folder"
    mv "$part/$folder"/* "data/$folder/"
    realpath "data/$folder"
    exit 0
  fi
done
say "$name is not on this machine and could not be downloaded: fetch $archive from ${mirrors[0]}, then  tar -xzf $archive -C data"
exit 1
