#!/usr/bin/env bash
# Installs into an empty folder, builds a C program with pkg-config against it, runs it, and removes
# everything again.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0
check() { # check TEXT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok $1"; else failed=$((failed + 1)); echo "not ok $1"; fi
}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export PREFIX=/opt/hawser DESTDIR=$root COMPONENTDIR=/opt/components
pkgconfig/install.sh install >"$root.log" 2>&1
check "make install" $?
export PKG_CONFIG_PATH=$root/opt/hawser/lib/pkgconfig
check "componentdir is stated" "$([ "$(pkg-config --variable=componentdir hawser)" = /opt/components ]; echo $?)"
check "also as mcadir" "$([ "$(pkg-config --variable=mcadir hawser)" = /opt/components ]; echo $?)"
check "the version is the crate's" "$([ "$(pkg-config --modversion hawser)" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)" ]; echo $?)"
# shellcheck disable=SC2046 # a list of words
cc -std=c11 -Wall -Wextra -Werror -o "$root/version" c-tests/version.c $(pkg-config --define-variable=prefix="$root/opt/hawser" --cflags --libs hawser)
check "a C program builds through pkg-config" $?
LD_LIBRARY_PATH=$root/opt/hawser/lib "$root/version" "$(pkg-config --modversion hawser)"
check "it runs, and the library states the same version" $?
check "it asks for the library by its soname" "$(readelf -d "$root/version" | grep -q 'NEEDED.*\[libhawser.so.0\]'; echo $?)"
check "the component links lead to the library" "$([ "$(readlink "$root/opt/components/mca_mtl_hawser.so")" = /opt/hawser/lib/libhawser.so ]; echo $?)"
# What debian/rules leaves out is what Open MPI's own package has.
twice=$(comm -12 <(cd "$root/opt/components" && printf '%s\n' mca_*.so | sort) <(dpkg -L libopenmpi3 | sed -n 's|.*/openmpi3/\(mca_.*\.so\)$|\1|p' | sort))
check "Debian's package leaves out the components that Open MPI's has" "$([ -n "$twice" ] && [ "$twice" = "$(sed -n '/^\trm \$(folders)/s|\$(folders)/openmpi3/||gp' debian/rules | tr ' ' '\n' | sed -n 's/^\t*\(mca_\)/\1/p' | sort)" ]; echo $?)"
check "the provider's folder is the one that pkg-config names" "$([ "$(pkg-config --variable=fidir hawser)" = /opt/hawser/lib/hawser/fi ]; echo $?)"
found=$(FI_PROVIDER_PATH=$root/opt/hawser/lib/hawser/fi IPATH_NO_BACKTRACE=1 fi_info -p gni 2>>"$root.log" | sed -n 's/^ *type: //p' | tr '\n' ' ')
check "libfabric finds the provider in its folder" "$([ "$found" = "FI_EP_RDM FI_EP_MSG FI_EP_DGRAM " ]; echo $?)"
found=$(env -u FI_PROVIDER_PATH LD_LIBRARY_PATH="$root/opt/hawser/lib" IPATH_NO_BACKTRACE=1 fi_info 2>>"$root.log" | grep -c 'gni')
check "and not where only the library's folder is searched" "$([ "$found" = 0 ]; echo $?)"
for program in hawser-info hawser-perf; do
    check "$program is installed, with its manual page" "$([ -x "$root/opt/hawser/bin/$program" ] && [ -f "$root/opt/hawser/share/man/man1/$program.1" ]; echo $?)"
    check "and says the same version" "$([ "$("$root/opt/hawser/bin/$program" --version)" = "hawser $(pkg-config --modversion hawser)" ]; echo $?)"
done

# Open MPI's own folder of components, without which it does not start.
own=$(ompi_info --parsable --all 2>/dev/null | sed -n 's/^path:pkglibdir://p' | head -n 1)
# doctor VARIABLE=VALUE…: what it says, with these.
doctor() {
    env -u OMPI_MCA_btl -u OMPI_MCA_mtl -u OMPI_MCA_pml HOME="$root" OMPI_MCA_mca_base_component_path="$root/mca:$own" "$@" \
        "$root/opt/hawser/bin/hawser-info" --doctor
}
mkdir "$root/mca" "$root/.openmpi"
for link in "$root/opt/components/"*; do ln -s "$root/opt/hawser/lib/libhawser.so" "$root/mca/${link##*/}"; done
doctor >"$root/told"
for about in "mtl hawser" "btl usnic" "btl smcuda" "btl verbs" "op hawser"; do
    # What libfabric and the kernel have here says whether it is used without a word.
    check "the doctor finds $about" "$(grep -Eq "^(good|note)  $about: $root/mca/mca_" "$root/told"; echo $?)"
done
check "and every line of it names where the components are" "$(grep -o 'mpirun -n 2 .*' "$root/told" | grep -qv -- "--mca mca_base_component_path $root/mca:"; echo $((! $?)))"
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] ||
    check "and no line for RDMA devices where there is none" "$(grep -q '^note  btl verbs: .*no RDMA device' "$root/told" && ! grep -q 'btl verbs,self' "$root/told"; echo $?)"
doctor OMPI_MCA_btl=tcp,self >"$root/told"
check "and says which variable leaves one out" "$(grep -q '^note  btl usnic: the variable OMPI_MCA_btl says btl = tcp,self' "$root/told"; echo $?)"
echo "pml = ob1" >"$root/.openmpi/mca-params.conf"
doctor >"$root/told"
check "and which file" "$(grep -q "^note  mtl hawser: $root/.openmpi/mca-params.conf says pml = ob1" "$root/told" && grep -q '^good  btl usnic' "$root/told"; echo $?)"
# finds LINE TEXT VARIABLE=VALUE…: the doctor says it, with these.
finds() {
    doctor "${@:3}" >"$root/told"
    check "the doctor finds $1" "$(grep -Eq -- "$2" "$root/told"; echo $?)"
}
echo "btl = ^usnic" >"$root/.openmpi/mca-params.conf"
finds "a list of what is left out, in a file" "^note  btl usnic: $root/.openmpi/mca-params.conf says btl = \^usnic, which leaves it out$"
check "and the line that works all the same" "$(grep -A1 '^note  btl usnic' "$root/told" | grep -Eq -- '-> the command line counts more: mpirun .* --mca btl usnic,self PROGRAM$'; echo $?)"
rm "$root/.openmpi/mca-params.conf"
finds "the same in a variable" '^note  btl smcuda: the variable OMPI_MCA_btl says btl = \^smcuda' OMPI_MCA_btl=^smcuda
finds "a list without self" '^bad   settings: the variable OMPI_MCA_btl says btl = usnic, without self' OMPI_MCA_btl=usnic
finds "a list that leaves self out" '^bad   settings: .* btl = \^self, without self' OMPI_MCA_btl=^self
finds "a list that both names and leaves out" '^bad   settings: .* btl = self,\^tcp: a \^ may stand only before the whole list' OMPI_MCA_btl=self,^tcp
finds "a value that is no number" '^bad   settings: the variable OMPI_MCA_btl_smcuda_eager_limit says btl_smcuda_eager_limit = twelve; it must be a whole number; Open MPI takes it for 0$' OMPI_MCA_btl_smcuda_eager_limit=twelve
check "and names no line for that component" "$(grep -q '^bad   btl smcuda: ' "$root/told" && ! grep -q 'btl smcuda,self' "$root/told"; echo $?)"
# no_line: neither what was told nor hawser-info without an option names a line, with these.
no_line() {
    env HOME="$root" "$@" "$root/opt/hawser/bin/hawser-info" >>"$root/told"
    check "and no line is printed" "$([ $? = 1 ] && ! grep -q 'mpirun -n 2' "$root/told"; echo $?)"
}
no_line_for() { # no_line_for COMPONENT WORDS VARIABLE=VALUE…: hawser-info without an option says why it prints none
    env HOME="$root" OMPI_MCA_mca_base_component_path="$root/mca:$own" "${@:3}" "$root/opt/hawser/bin/hawser-info" >"$root/told"
    check "hawser-info prints no line for $1 then, and says why" "$(grep -q "^  no line for $1: " "$root/told" && grep -q '^  hawser-info --doctor says more$' "$root/told" && ! grep -q -- "$2" "$root/told"; echo $?)"
}
no_line_for "btl smcuda" "btl smcuda,self" OMPI_MCA_btl_smcuda_eager_limit=twelve
finds "an empty number" '^bad   settings: .* btl_smcuda_eager_limit = ; it must be .*; Open MPI takes it for 0$' OMPI_MCA_btl_smcuda_eager_limit=
for ignored in btl_smcuda_eager_limit=8g btl_usnic_latency=-1 btl_usnic_flags=send,put,bogus btl_usnic_flags=999999 mtl_hawser_tag_mode=9; do
    finds "a value that Open MPI ignores" "^bad   settings: .* ${ignored%%=*} = ${ignored#*=}; it must be .*; Open MPI ignores it$" "OMPI_MCA_$ignored"
    check "and the line for the component all the same" "$(grep -q '^good  btl smcuda: .*btl smcuda,self' "$root/told" && grep -q '^good  btl usnic: .*btl usnic,self' "$root/told"; echo $?)"
done
doctor OMPI_MCA_btl_smcuda_eager_limit=12kb OMPI_MCA_mtl_hawser_tag_mode=OFI_TAG_1 OMPI_MCA_btl_usnic_link= >"$root/told"
check "the doctor accepts what Open MPI accepts" "$(! grep -q '^bad   settings' "$root/told" && grep -q '^good  btl smcuda' "$root/told" && grep -q '^good  btl usnic' "$root/told"; echo $?)"
echo 'btl = "smcuda,self" # these' >"$root/.openmpi/mca-params.conf"
finds "quotes and remarks in a value" "^bad   settings: $root/.openmpi/mca-params.conf says btl = \"smcuda,self\" # these, and there is no component .\"smcuda." A=b
check "and says how it is written" "$(grep -A1 '^bad   settings' "$root/told" | grep -q -- '-> write the names with commas between them alone'; echo $?)"
printf -- '/* btl = nosuch\n*/ -mca btl ^smcuda\n' >"$root/.openmpi/mca-params.conf"
finds "what a remark leaves and an option in a file" '^note  btl smcuda: .* says btl = \^smcuda, which leaves it out$' A=b
mv "$root/.openmpi/mca-params.conf" "$root/named.conf"
finds "a file that is named" "^note  btl smcuda: $root/named.conf says btl" "OMPI_MCA_mca_base_param_files=$root/named.conf"
rm "$root/named.conf"
finds "a blank in a list" '^bad   settings: .* there is no component ` self`' "OMPI_MCA_btl=smcuda, self"
finds "a component that there is not" '^bad   settings: .* btl = nosuch,smcuda,self, and there is no component `nosuch`' OMPI_MCA_btl=nosuch,smcuda,self
finds "a layer that there is not" '^bad   settings: .* pml = nosuch, and there is no component `nosuch`' OMPI_MCA_pml=nosuch
finds "that no line works with a list of another kind" '^bad   btl usnic: .*: it is not used as long as MPI_Init fails$' OMPI_MCA_op=nosuch
no_line_for "btl usnic" "btl usnic,self" OMPI_MCA_op=nosuch
no_line_for "mtl hawser" "--mca mtl hawser" OMPI_MCA_btl=nosuch,self
for lists in if_include=nosuch9 if_include=10.1.0.0/99 "if_exclude=0.0.0.0/0,::/0"; do
    finds "interfaces that cannot be used" "^bad   settings: btl_usnic_${lists%%=*}" "OMPI_MCA_btl_usnic_$lists"
    check "and names no line for btl usnic" "$(grep -q '^bad   btl usnic: ' "$root/told" && ! grep -q 'btl usnic,self' "$root/told"; echo $?)"
    no_line_for "btl usnic" "btl usnic,self" "OMPI_MCA_btl_usnic_$lists"
done
finds "a value that has no such name" '^bad   settings: .* mtl_hawser_tag_mode = ofi; it must be one of auto, ' OMPI_MCA_mtl_hawser_tag_mode=ofi
finds "a value that a component refuses" '^bad   btl usnic: .* btl_usnic_eager_limit is 9999999; it must be 0 to ' OMPI_MCA_btl_usnic_eager_limit=9999999
finds "one that the MTL refuses" '^bad   mtl hawser: .* mtl_hawser_enable_sep is 2; it must be 0 to 1' OMPI_MCA_mtl_ofi_enable_sep=2
finds "a provider that is not here" '^note  mtl hawser: .* says mtl_ofi_provider_include = nosuch, and the providers here are others' OMPI_MCA_mtl_ofi_provider_include=nosuch
check "and the line names one that is" "$(grep -A1 '^note  mtl hawser' "$root/told" | grep -Eq -- "-> mpirun .* --mca mtl_ofi_provider_include '[^']+' PROGRAM$"; echo $?)"
finds "providers that are all left out" '^note  mtl hawser: .* says mtl_hawser_provider_exclude = .*, which leaves out all providers here' \
    "OMPI_MCA_mtl_hawser_provider_exclude=$(fi_info -l 2>/dev/null | sed -n 's/^\([a-z].*\):$/\1/p' | paste -sd ,),tcp,udp,net"
finds "a value that is no text" '^bad   settings: the variable OMPI_MCA_btl_usnic_if_include says .*, which is not all text' $'OMPI_MCA_btl_usnic_if_include=eth\xff'
finds "a list that is no text" '^bad   settings: the variable OMPI_MCA_btl says .*, which is not all text' $'OMPI_MCA_btl=usnic\xff,self'
finds "that the first folder is not there" "^bad   component folders: /nowhere is no folder; it is on mca_base_component_path \(the variable OMPI_MCA_mca_base_component_path says it\): Open MPI 4.1 then does not find its own" "OMPI_MCA_mca_base_component_path=/nowhere:$root/mca:$own"
OMPI_MCA_mca_base_component_path=/nowhere "$root/opt/hawser/bin/hawser-info" >"$root/told"
check "hawser-info finds that, too" "$(grep -q '^  /nowhere is no folder; it is on mca_base_component_path' "$root/told"; echo $?)"
mkdir "$root/strange"
ln -s /gone/lib/stranger.so "$root/strange/mca_btl_stranger.so"
finds "a link to nothing before Open MPI's own folder" "^bad   component folders: $root/strange/mca_btl_stranger.so is a link to /gone/lib/stranger.so, which is not there; .* mpirun does not start$" "OMPI_MCA_mca_base_component_path=$root/mca:$root/strange:$own"
no_line "OMPI_MCA_mca_base_component_path=$root/mca:$root/strange:$own"
finds "a path without Open MPI's own folder" "^bad   component folders: .* lacks $own, which is Open MPI's own" "OMPI_MCA_mca_base_component_path=$root/mca"
no_line "OMPI_MCA_mca_base_component_path=$root/mca"
for harmless in "$root/mca:$own:$root/strange" "$root/mca:$own:/nowhere" ":$root/mca::$own"; do
    doctor "OMPI_MCA_mca_base_component_path=$harmless" >"$root/told"
    check "the doctor finds nothing wrong where nothing stands behind it: $harmless" "$(! grep -q '^bad   component folders' "$root/told" && grep -q '^good  btl usnic' "$root/told"; echo $?)"
done
finds "a missing folder in the middle" "^bad   component folders: /nowhere is no folder; .* looks no further" "OMPI_MCA_mca_base_component_path=$own:/nowhere:$root/mca"
rm -r "$root/strange"
OMPI_MCA_mca_base_component_path=$root/mca:$own "$root/opt/hawser/bin/hawser-info" >"$root/told"
check "hawser-info heeds the path of components, too" "$(grep -q -- "--mca mca_base_component_path $root/mca:$own .* --mca btl usnic,self PROGRAM$" "$root/told"; echo $?)"
echo "mca_base_component_path = $root/mca:$own" >"$root/.openmpi/mca-params.conf"
HOME=$root "$root/opt/hawser/bin/hawser-info" >"$root/told"
check "and one that a file sets" "$(grep -q -- "--mca mca_base_component_path $root/mca:$own .* --mca btl usnic,self PROGRAM$" "$root/told"; echo $?)"
rm "$root/.openmpi/mca-params.conf"
cp -r "$root/mca" "$root/m c\$a"
(cd "$root" && opt/hawser/bin/hawser-info --component-dir 'm c$a') >"$root/told"
check "a folder is written as a shell reads it, and whole" "$(grep -qF -- "--mca mca_base_component_path '$root/m c\$a:$own' " "$root/told"; echo $?)"
mv "$root/m c\$a" "$root/m:c"
"$root/opt/hawser/bin/hawser-info" --component-dir "$root/m:c" >"$root/told"
check "and it is said that no line can name a folder with a colon" "$([ $? = 1 ] && grep -q 'because of the : in it' "$root/told" && ! grep -q 'mpirun -n 2' "$root/told"; echo $?)"
rm -r "$root/m:c"
mkdir "$root/hurt"
: >"$root/hurt/libhawser.so.0"
ln -sf "$root/hurt/libhawser.so.0" "$root/mca/mca_btl_smcuda.so"
ln -sf /gone/libhawser.so "$root/mca/mca_btl_usnic.so"
finds "a link to nothing" "^bad   btl usnic: $root/mca/mca_btl_usnic.so is a link to /gone/libhawser.so, which is not there$"
finds "a damaged library, and what the loader says" '^bad   btl smcuda: .*libhawser\.so\.0 cannot be loaded \(.*file too short\)$'
"$root/opt/hawser/bin/hawser-info" --component-dir "$root/mca" >"$root/told"
status=$?
check "and prints no line that fails" "$([ $status = 1 ] && ! grep -q 'mpirun -n 2' "$root/told"; echo $?)"
check "hawser-info finds a link to nothing" "$(grep -q "^    $root/mca: .*mca_btl_usnic.so is a link to /gone/libhawser.so, which is not there" "$root/told"; echo $?)"
for name in usnic smcuda; do ln -sf "$root/opt/hawser/lib/libhawser.so" "$root/mca/mca_btl_$name.so"; done
ln -s "$root/hurt/libhawser.so.0" "$root/hurt/mca_mtl_hawser.so"
"$root/opt/hawser/bin/hawser-info" --component-dir "$root/hurt" >"$root/told"
check "nor for a damaged library, and says why" "$([ $? = 1 ] && grep -q "^  no line for mtl hawser: $root/hurt/mca_mtl_hawser.so cannot be loaded .*file too short" "$root/told"; echo $?)"
rm -r "$root/hurt"
! doctor OMPI_MCA_mca_base_component_path=/nowhere >"$root/told"
check "and fails where there is none" $?
check "and says what to do" "$(grep -A1 '^bad   btl smcuda: .*(/nowhere)' "$root/told" | grep -q -- '-> run .make install'; echo $?)"
described=$root/opt/hawser/lib/pkgconfig/hawser.pc
cp "$described" "$root/described"
sed -i "s|^componentdir=.*|componentdir=$root/mca|" "$described"
doctor "OMPI_MCA_mca_base_component_path=$own" >"$root/told"
check "and where make install has put them" "$(grep -A1 '^bad   mtl hawser: ' "$root/told" | grep -qxF -- "      -> say --mca mca_base_component_path $root/mca:$own"; echo $?)"
env HOME="$root" "$root/opt/hawser/bin/hawser-info" >"$root/told"
check "hawser-info looks there, too" "$(grep -q -- "--mca mca_base_component_path $root/mca:$own .*btl usnic,self PROGRAM$" "$root/told"; echo $?)"
mv "$root/described" "$described"
# Root may read everything, by two capabilities.
plain=()
[ "$(id -u)" != 0 ] || plain=(setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search)
mkdir -m 0 "$root/closed"
"${plain[@]}" env HOME="$root" OMPI_MCA_mca_base_component_path="$own:$root/closed" "$root/opt/hawser/bin/hawser-info" --doctor >"$root/told"
check "and says which folder may not be read, and what to do" "$(grep -A1 "^bad   mtl hawser: .*$root/closed cannot be read (Permission denied" "$root/told" | grep -q -- '-> chmod a+rX'; echo $?)"
rmdir "$root/closed"
strange=$root/$'m\xff'
cp -r "$root/mca" "$strange"
env HOME="$root" OMPI_MCA_mca_base_component_path="$strange:$own" "$root/opt/hawser/bin/hawser-info" --doctor >"$root/told"
check "a folder whose name is no text is not called missing" "$(! grep -q 'is no folder' "$root/told" && grep -a '^bad   btl usnic' "$root/told" | grep -q 'not all text'; echo $?)"
rm -r "$strange"
"$root/opt/hawser/bin/hawser-info" --component-dir="$root/mca" >"$root/told"
check "a value may stand behind its option" "$(grep -q "^    $root/mca: " "$root/told" && "$root/opt/hawser/bin/hawser-info" --params=usnic | grep -q '^btl usnic$'; echo $?)"
"$root/opt/hawser/bin/hawser-info" >&- 2>"$root/told"
check "hawser-info fails without a standard output" "$([ $? = 1 ] && grep -q '^hawser-info: standard output: ' "$root/told"; echo $?)"
"$root/opt/hawser/bin/hawser-info" --doctor --json | python3 -c 'import json, sys; found = json.load(sys.stdin)["findings"]; sys.exit(len(found) < 5)'
check "and says the same for programs" $?
"$root/opt/hawser/bin/hawser-info" --json >"$root/told"
python3 - "$root/told" "$root/opt/hawser/lib/libhawser.so.$(pkg-config --modversion hawser)" <<'PYTHON'
import json, sys
found = json.load(open(sys.argv[1]))
assert found["library"] == sys.argv[2], found["library"]
assert found["host"]["accepts"] is True and found["host"]["refusal"] is None
assert found["libfabric"]["version"] and found["directories"]
assert all(one["line"].startswith("mpirun ") for one in found["commands"])
PYTHON
check "without an option, too" $?

# params ARGUMENT…: what can be set, with one variable and one file.
params() {
    env HOME="$root" OMPI_MCA_btl_smcuda_eager_limit=2048 OMPI_MCA_mtl_ofi_tag_mode=ofi_tag_2 "$root/opt/hawser/bin/hawser-info" --params "$@"
}
echo "btl_usnic_link = socket" >"$root/.openmpi/mca-params.conf"
params --json >"$root/told"
python3 - "$root/told" "$root" <<'PYTHON'
import json, sys
found = {one["framework"] + "_" + one["name"]: one for one in json.load(open(sys.argv[1]))["components"]}
assert set(found) == {"mtl_ofi", "mtl_hawser", "btl_usnic", "btl_smcuda", "btl_verbs", "btl_openib", "accelerator_cuda", "op_hawser"}, set(found)
value = {one["name"]: one for component in found.values() for one in component["parameters"]}
eager, link, mode = value["btl_smcuda_eager_limit"], value["btl_usnic_link"], value["mtl_hawser_tag_mode"]
assert (eager["default"], eager["value"]) == ("4096", "2048") and "OMPI_MCA_btl_smcuda_eager_limit" in eager["set_by"], eager
assert (link["value"], link["set_by"]) == ("socket", sys.argv[2] + "/.openmpi/mca-params.conf"), link
assert (mode["default"], mode["value"]) == ("auto", "ofi_tag_2") and "OMPI_MCA_mtl_ofi_tag_mode" in mode["set_by"], mode
assert value["btl_usnic_max_btls"]["set_by"] is None and value["btl_usnic_max_btls"]["value"] == "0"
assert value["mtl_hawser_verbose"]["also_set_by"] == ["mtl_ofi_verbose", "opal_common_ofi_verbose"]
assert all(len(one["help"]) > 15 for one in value.values())
assert all(component["counters"] for name, component in found.items() if name != "op_hawser")
PYTHON
check "hawser-info says what can be set, what is, and by whom" $?
params smcuda >"$root/told"
check "and of one component in words" "$(grep -qx '  btl_smcuda_eager_limit = 2048' "$root/told" && grep -q 'by the variable OMPI_MCA_btl_smcuda_eager_limit; default 4096$' "$root/told" && ! grep -q usnic "$root/told"; echo $?)"
params mtl_ofi >"$root/told"
check "and the other names of a parameter, as README.md has them" "$(grep -A9 -x '  mtl_ofi_verbose = 0' "$root/told" | grep -q '^      also set by opal_common_ofi_verbose$'; echo $?)"
params nothing >"$root/told" 2>&1
check "and which there are, where there is no such component" "$([ $? = 2 ] && grep -q 'take one of mtl_ofi, ' "$root/told"; echo $?)"
rm -r "$root/mca" "$root/.openmpi"

for page in "$root"/opt/hawser/share/man/man*/*; do
    told=$(groff -K utf8 -t -man -Tutf8 -ww -rLL=78n "$page" 2>&1 >/dev/null)
    check "a manual page fits on a terminal of 80 columns, and nothing is wrong with it: ${page##*/}${told:+: $told}" "$([ -z "$told" ]; echo $?)"
done
check "the help texts lie where the library looks for them" "$([ -f "$root/opt/hawser/lib/../share/hawser/help-hawser.txt" ]; echo $?)"
check "and the licence where papers lie" "$(cmp -s LICENSE "$root/opt/hawser/share/doc/hawser/LICENSE"; echo $?)"

(LIBDIR=$PREFIX/lib/x86_64-linux-gnu DESTDIR=$root/multi pkgconfig/install.sh install) >>"$root.log" 2>&1
found=$(PKG_CONFIG_PATH=$root/multi$PREFIX/lib/x86_64-linux-gnu/pkgconfig pkg-config --variable=libdir hawser)
check "the library may lie in a folder for the architecture" "$([ "$found" = /opt/hawser/lib/x86_64-linux-gnu ]; echo $?)"
told=$(cd "$root/multi$PREFIX/bin" && ./hawser-info 2>&1)
check "and hawser-info finds it there" "$(grep -q "$root/multi$PREFIX/lib/x86_64-linux-gnu/libhawser.so" <<<"$told"; echo $?)"
"$root/multi$PREFIX/bin/hawser-info" 2>"$root.told" | :
check "hawser-info ends quietly when nobody reads on" "$([ ! -s "$root.told" ]; echo $?)"
"$root/multi$PREFIX/bin/hawser-info" --params >/dev/full 2>"$root.told"
status=$?
check "hawser-info says in one line that it cannot write" "$([ $status = 1 ] && [ "$(grep -c '' "$root.told")" = 1 ] && grep -q '^hawser-info: standard output: ' "$root.told"; echo $?)"
"$root/multi$PREFIX/bin/hawser-info" $'--\xff' >/dev/null 2>"$root.told"
status=$?
check "hawser-info says how it is called to who gives it an option that is no text" "$([ $status = 2 ] && grep -q '^usage: ' "$root.told"; echo $?)"
for wrong in "--nothing|--nothing: there is no such option" "--doctor --params|--doctor and --params: one of them" "--doctor usnic|usnic: there is nothing"; do
    # shellcheck disable=SC2086 # a list of words
    "$root/multi$PREFIX/bin/hawser-info" ${wrong%|*} >/dev/null 2>"$root.told"
    status=$?
    check "hawser-info names what is wrong with ${wrong%|*}" "$([ $status = 2 ] && grep -q "^hawser-info: ${wrong#*|}" "$root.told"; echo $?)"
done
rm -f "$root.told"
(LIBDIR=$PREFIX/lib/x86_64-linux-gnu DESTDIR=$root/multi pkgconfig/install.sh uninstall) >>"$root.log" 2>&1
left=$(find "$root/multi" -type f -o -type l)
check "and make uninstall, too${left:+: $left}" "$([ -z "$left" ]; echo $?)"

rm -f "$root/opt/components/mca_mtl_ofi.so"
echo "somebody else's" >"$root/opt/components/mca_mtl_ofi.so"
pkgconfig/install.sh install >>"$root.log" 2>&1
check "a stranger's component is left alone" "$(grep -q "somebody else's" "$root/opt/components/mca_mtl_ofi.so"; echo $?)"
rm -f "$root/opt/components/mca_mtl_ofi.so"

pkgconfig/install.sh uninstall >>"$root.log" 2>&1
left=$(find "$root/opt" -type f -o -type l)
check "make uninstall leaves no file${left:+: $left}" "$([ -z "$left" ]; echo $?)"

# What a user may say otherwise when it is removed, and what nothing can be installed with.
at=$root/otherwise
apart() { env -u COMPONENTDIR -u PREFIX "DESTDIR=$at" "$@" >"$root.told" 2>&1; }
nothing_left() { [ -z "$(find "$at" -type f -o -type l)" ]; }
apart PREFIX=/o/h/ LIBDIR=lib64 COMPONENTDIR=/o//c/ pkgconfig/install.sh install
check "and hawser-info finds the library in lib64" "$("$at/o/h/bin/hawser-info" 2>&1 | grep -q "^library: $at/o/h/lib64/libhawser.so"; echo $?)"
check "a relative LIBDIR is below PREFIX" "$([ -e "$at/o/h/lib64/libhawser.so" ] && [ "$(readlink "$at/o/c/mca_btl_usnic.so")" = /o/h/lib64/libhawser.so ]; echo $?)"
mv "$at/o/h/lib64/libhawser.so.$(pkg-config --modversion hawser 2>/dev/null || sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)" "$at/o/h/lib64/libhawser.so.0.0.1"
ln -s /o/h/lib64/libhawser.so "$at/o/c/mca_btl_former.so"
apart PREFIX=/o/h LIBDIR=/o/h/lib64 COMPONENTDIR=/o/c pkgconfig/install.sh install
check "the library of an earlier version goes when a later one comes" "$([ ! -e "$at/o/h/lib64/libhawser.so.0.0.1" ] && [ "$(find "$at/o/h/lib64" -name 'libhawser.so.*.*' | wc -l)" = 1 ]; echo $?)"
apart PATH=/usr/bin:/bin PREFIX=/o/h pkgconfig/install.sh uninstall
check "who removes it need not say again where it lies, and no link of an earlier version stays" "$(nothing_left; echo $?)"
for wrong in PREFIX=o COMPONENTDIR=o "PREFIX=/o h" "PREFIX=/o&h" "LIBDIR=/o|h"; do
    apart PREFIX=/o/h COMPONENTDIR=/o/c "$wrong" pkgconfig/install.sh install
    status=$?
    check "nothing is installed with $wrong, and it is said why" "$([ $status = 1 ] && grep -q "^install.sh: ${wrong%%=*} is \`${wrong#*=}" "$root.told" && nothing_left; echo $?)"
done
mkdir -p "$at/o/c" && : >"$at/o/file"
apart PREFIX=/o/h COMPONENTDIR=/o/file/c pkgconfig/install.sh install
status=$?
check "nor where the components cannot go" "$([ $status = 1 ] && grep -q 'cannot be written to: .*COMPONENTDIR' "$root.told" && rm "$at/o/file" && nothing_left; echo $?)"
ln -s /gone/lib/libhawser.so "$at/o/c/mca_btl_usnic.so" && ln -s /gone/lib/stranger.so "$at/o/c/mca_btl_smcuda.so"
apart PREFIX=/o/h COMPONENTDIR=/o/c pkgconfig/install.sh install
check "a link that another hawser has left behind is taken over, a stranger's is not" "$([ "$(readlink "$at/o/c/mca_btl_usnic.so")" = /o/h/lib/libhawser.so ] && [ "$(readlink "$at/o/c/mca_btl_smcuda.so")" = /gone/lib/stranger.so ] && grep -q 'left alone: .*mca_btl_smcuda.so belongs to somebody else; but it leads nowhere, ' "$root.told"; echo $?)"
apart PREFIX=/o/other COMPONENTDIR=/o/c pkgconfig/install.sh install
status=$?
check "two do not share a folder of components" "$([ $status = 1 ] && grep -q 'is of another hawser, /o/h/lib/libhawser.so: uninstall that' "$root.told" && [ ! -e "$at/o/other" ]; echo $?)"
(cd "$root" && env -u COMPONENTDIR PREFIX=/o/h DESTDIR=otherwise "$OLDPWD/pkgconfig/install.sh" uninstall)
rm "$at/o/c/mca_btl_smcuda.so"
check "a relative DESTDIR is where the caller is" "$(nothing_left; echo $?)"
rm -f "$root.told"

# The loader's list of libraries: a stand-in for ldconfig(8) that searches one folder, and notes when it makes the list anew.
mkdir "$root/sbin"
cat >"$root/sbin/ldconfig" <<'SCRIPT'
#!/bin/sh
case "$*" in
*-v*) echo "$SEARCHED: (from a file:1)" ;;
*) echo "made" >>"$NOTES" ;;
esac
SCRIPT
chmod +x "$root/sbin/ldconfig"
# made DESTDIR FOLDER VERB…: how often the list was made, where the loader searches that folder.
made() {
    rm -f "$root/notes"
    for verb in "${@:3}"; do
        PATH=$root/sbin:$PATH NOTES=$root/notes SEARCHED=$2 PREFIX=$root/own DESTDIR=$1 pkgconfig/install.sh "$verb" >>"$root.log" 2>&1
    done
    grep -c made "$root/notes" 2>/dev/null
}
if [ "$(id -u)" = 0 ]; then
    check "programs find what was installed where the loader searches" "$([ "$(COMPONENTDIR=$root/own/mca made "" "$root/own/lib" install)" = 1 ]; echo $?)"
    check "and its list is made anew when that is removed" "$([ "$(COMPONENTDIR=$root/own/mca made "" "$root/own/lib" uninstall)" = 1 ]; echo $?)"
    check "it is left alone where the loader does not search" "$([ -z "$(COMPONENTDIR=$root/own/mca made "" /usr/local/lib install uninstall)" ]; echo $?)"
    check "and where a package is made" "$([ -z "$(COMPONENTDIR=/mca made "$root/package" "$root/own/lib" install uninstall)" ]; echo $?)"
fi

# The list of components, in a copy of what the scripts read.
tree=$root/tree
mkdir -p "$tree/src/host" "$tree/target"
cp -r pkgconfig include docs Cargo.toml "$tree/"
ln -s "$PWD/target/release" "$tree/target/release"
list() { # list LINE…: the byte transports
    {
        printf '%s\n' 'macro_rules! byte_transports {' '    ($($slot:ident,)*) => {};' '}' '' 'matching_transports! {' '    AsOfi => mca_mtl_ofi_component,' '}' '' 'byte_transports! {'
        printf '    %s\n' "$@"
        printf '}\n'
    } >"$tree/src/host/components.rs"
}
named() { "$tree/pkgconfig/components.sh" "$@" 2>>"$root.log" | tr '\n' ' '; }
list 'a::B => mca_btl_b2_component,' '// Words.' 'a::C => mca_btl_shared_memory_component,'
check "a name may have digits and underscores" "$([ "$(named)" = "mtl_ofi btl_b2 btl_shared_memory " ]; echo $?)"
list '#[cfg(feature = "shared-x2")]' 'a::B => mca_btl_b_component,' 'a::C => mca_btl_c_component,'
check "a feature may, too: without it its component is not there" "$([ "$(named)" = "mtl_ofi btl_c " ]; echo $?)"
check "and with it, it is" "$([ "$(named shared-x2)" = "mtl_ofi btl_b btl_c " ]; echo $?)"
for line in '#[cfg(not(feature = "x"))]' '#[cfg(all(feature = "x", unix))]' '#[path = "x"]' 'a::B => mca_btl_B_component,' 'a::B => btl_b,'; do
    list "$line" 'a::C => mca_btl_c_component,'
    ! "$tree/pkgconfig/components.sh" >/dev/null 2>>"$root.log"
    check "an error: $line" $?
done
rm "$tree/src/host/components.rs"
for verb in install uninstall; do
    ! DESTDIR=$root/without "$tree/pkgconfig/install.sh" $verb >>"$root.log" 2>&1 && [ ! -e "$root/without" ]
    check "without the list, $verb fails and touches nothing" $?
done
[ "$failed" = 0 ] || cat "$root.log"
rm -f "$root.log"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
