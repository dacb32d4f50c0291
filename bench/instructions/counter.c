// A plugin of QEMU's user-mode emulators: how many instructions a program executed, on standard error.
// QEMU's interface, version 1, as far as it is needed: Debian has no header of it.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*OnBlock)(qemu_plugin_id_t, struct qemu_plugin_tb*);
typedef void (*OnExit)(qemu_plugin_id_t, void*);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, OnBlock);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, enum qemu_plugin_op, void*,
                                              uint64_t);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, OnExit, void*);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);

EXPORT int qemu_plugin_version = 1;

static uint64_t executed;

static void CountBlock(qemu_plugin_id_t id, struct qemu_plugin_tb* block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &executed,
                                           qemu_plugin_tb_n_insns(block));
}

static void Print(qemu_plugin_id_t id, void* data) {
  (void)id, (void)data;
  fprintf(stderr, "instructions %llu\n", (unsigned long long)executed);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void* info, int count, char** words) {
  (void)info, (void)count, (void)words;
  qemu_plugin_register_vcpu_tb_trans_cb(id, CountBlock);
  qemu_plugin_register_atexit_cb(id, Print, NULL);
  return 0;
}
