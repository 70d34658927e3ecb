# hawser: builds, stages, tests.
.PHONY: all setup test headers
all:
	cargo build --release
	mkdir -p target/mca
	cp -f target/release/libhawser.so target/mca/libhawser.so
	ln -sf libhawser.so target/mca/mca_mtl_ofi.so
	ln -sf libhawser.so target/mca/mca_mtl_hawser.so

setup:
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends gcc make pkg-config clang libclang-dev libfabric-dev openmpi-bin libopenmpi-dev

headers:
	HAWSER_BLESS=1 cargo test --release --test headers

test: setup all
	cargo test --release
	c-tests/layout.sh debian12
