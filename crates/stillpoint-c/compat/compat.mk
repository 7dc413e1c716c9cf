# liburcu's API: included by the Makefile.
#
#   make compat                 target/$(PROFILE)/stillpoint-c/compat: libraries in place of liburcu's, for unmodified programs
#   make URCU_VERSION=0.13      libraries in place of that version's; by default of the one that is installed, or of 0.15
#   make check-compat           the programs of compat/tests, against liburcu (if it is installed) and against both forms of ours
#   make bench-compat           compat/bench
COMPAT := $(OUT)/compat
COMPAT_INCLUDE := -I$(ROOT)/include/stillpoint/compat -I$(ROOT)/include
COMPAT_HEADERS := $(shell find $(ROOT)/include/stillpoint -name '*.h')
COMPAT_FLAVOURS := memb mb qsbr bp
COMPAT_LIBRARIES := $(COMPAT_FLAVOURS:%=$(COMPAT)/liburcu-%.so.8)

# Before 0.14 rcu_flavor_struct had two members less, and the loader warns of a library with a larger one than a program was linked with.
URCU_VERSION ?= $(or $(shell pkg-config --modversion liburcu 2> /dev/null),0.15)
COMPAT_FLAGS := $(if $(filter 0.13 0.13.%,$(URCU_VERSION)),-DSTILLPOINT_URCU_0_13_)

all: compat

.PHONY: compat
compat: $(COMPAT_LIBRARIES) $(COMPAT)/liburcu.so.8

COMPAT_SYMBOLS := $(ROOT)/compat/runtime/pointer.c $(ROOT)/compat/runtime/futex.c

# It finds libstillpoint beside its own directory, or, installed, above.
$(COMPAT)/liburcu-%.so.8: $(ROOT)/compat/lib/%.c $(COMPAT_SYMBOLS) $(ROOT)/compat/lib/compat.h $(COMPAT_HEADERS) \
    $(OUT)/libstillpoint.so
	@mkdir -p $(COMPAT)
	$(CC) -std=c11 $(CFLAGS) -fPIC -fvisibility=hidden $(WARNINGS) $(COMPAT_FLAGS) $(COMPAT_INCLUDE) -shared -o $@ $< $(COMPAT_SYMBOLS) -L$(OUT) -lstillpoint \
	    -Wl,-soname,liburcu-$*.so.8 -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../..' -Wl,-z,nodelete,-z,relro,-z,now,-z,defs

# Programs that were linked with -lurcu ask for this name. The same file, so that a process never has two of them.
$(COMPAT)/liburcu.so.8: $(COMPAT)/liburcu-memb.so.8
	ln -sf liburcu-memb.so.8 $@

install: install-compat

.PHONY: install-compat
install-compat: compat
	install -d "$(TO_LIB)/stillpoint/compat" "$(TO_LIB)/pkgconfig"
	$(foreach library,$(COMPAT_LIBRARIES),$(call INSTALL_STRIPPED,$(library),$(TO_LIB)/stillpoint/compat))
	ln -sf liburcu-memb.so.8 "$(TO_LIB)/stillpoint/compat/liburcu.so.8"
	$(FILL) $(ROOT)/packaging/stillpoint-urcu.pc.in > "$(TO_LIB)/pkgconfig/stillpoint-urcu.pc"

install-symbols: install-symbols-compat
uninstall: uninstall-compat

.PHONY: install-symbols-compat
install-symbols-compat: install-compat
	install -d "$(TO_LIB)/stillpoint/compat/.debug"
	install -m 644 $(COMPAT_LIBRARIES:%=%.debug) "$(TO_LIB)/stillpoint/compat/.debug/"

.PHONY: uninstall-compat
uninstall-compat:
	$(call REMOVE,$(TO_LIB),$(patsubst $(COMPAT)/%,stillpoint/compat/%,$(COMPAT_LIBRARIES) $(COMPAT)/liburcu.so.8) \
	    $(COMPAT_LIBRARIES:$(COMPAT)/%=stillpoint/compat/.debug/%.debug) pkgconfig/stillpoint-urcu.pc)
	$(call REMOVE_EMPTY,$(TO_LIB),stillpoint/compat/.debug stillpoint/compat stillpoint)

.PHONY: check-compat
check-compat: compat $(OUT)/libstillpoint.a
	CC="$(CC)" CXX="$(CXX)" OUT=$(OUT) LIBS="$(LIBS)" $(ROOT)/compat/tests/run

.PHONY: bench-compat
bench-compat: compat
	CC="$(CC)" OUT=$(OUT) $(ROOT)/compat/bench/run
