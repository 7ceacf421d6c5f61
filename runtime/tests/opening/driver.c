// A driver that tells of GPUs, INIT, VERSION and COUNT being what it says, and can do nothing else.

int cuInit(unsigned flags) { return flags ? 1 : INIT; }

int cuDriverGetVersion(int* version) {
    *version = VERSION;
    return 0;
}

int cuDeviceGetCount(int* count) {
    *count = COUNT;
    return 0;
}

int cuDeviceGet(int* device, int index) {
    *device = index;
    return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
    if (length < 2) return 1;
    name[0] = (char)('A' + device);
    name[1] = 0;
    return 0;
}

int cuDeviceTotalMem_v2(unsigned long* bytes, int device) {
    *bytes = (8ul + (unsigned long)device) << 30;
    return 0;
}

// Compute capability 8.6.
int cuDeviceGetAttribute(int* value, int which, int device) {
    *value = which == 75 ? 8 : which == 76 ? 6 : 100 + device;
    return 0;
}
