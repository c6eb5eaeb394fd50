// The system's resolver, but that a file of the test is asked first: names and addresses, "-" for a name without one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    lookup *system = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *path = getenv("FLEETCACHE_E2E_NAMES");
    FILE *file = path && name ? fopen(path, "re") : NULL;
    char known[256], address[64];
    int is_known = 0;
    while (file && !is_known && fscanf(file, "%255s %63s", known, address) == 2) {
        is_known = strcmp(known, name) == 0;
    }
    if (file) {
        fclose(file);
    }
    if (!is_known) {
        return system(name, service, hints, found);
    }
    return strcmp(address, "-") == 0 ? EAI_NONAME : system(address, service, hints, found);
}
