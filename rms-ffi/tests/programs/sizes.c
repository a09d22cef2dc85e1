/* Prints the size of every struct of the header, one a line. */
#include <rms.h>
#include <stdio.h>

int main(void) {
    printf("%zu\n%zu\n%zu\n", sizeof(rms_options), sizeof(rms_limits), sizeof(rms_speedup_point));
    printf("%zu\n%zu\n%zu\n%zu\n", sizeof(rms_terms), sizeof(rms_event), sizeof(rms_node), sizeof(rms_change));
    printf("%zu\n", sizeof(rms_stage));
    return 0;
}
