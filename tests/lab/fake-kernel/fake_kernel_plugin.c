/*
 * charon without IPsec in the kernel: a plugin that registers the fake_kernel of strongSwan's own
 * load-tester and nothing else of it, for its credentials, configurations and listener would take part in
 * every handshake. Built by ../setup-fake-kernel.sh against the source of the package under test.
 */
#include <daemon.h>
#include <kernel/kernel_interface.h>
#include <plugins/load_tester/load_tester_ipsec.h>
#include <plugins/plugin.h>

static char *name(plugin_t *this)
{
    return "fake-kernel";
}

static int features(plugin_t *this, plugin_feature_t *list[])
{
    static plugin_feature_t only[] = {
        PLUGIN_CALLBACK(kernel_ipsec_register, load_tester_ipsec_create),
            PLUGIN_PROVIDE(CUSTOM, "kernel-ipsec"),
    };
    *list = only;
    return countof(only);
}

static bool reload(plugin_t *this)
{
    return FALSE;
}

static void destroy(plugin_t *this)
{
}

PLUGIN_DEFINE(fake_kernel)
{
    static plugin_t plugin = {
        .get_name = name,
        .get_features = features,
        .reload = reload,
        .destroy = destroy,
    };
    return &plugin;
}
