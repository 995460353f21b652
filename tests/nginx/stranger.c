/* A program that calls itself nginx, and writes down as whom it runs each time that it does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char TEXTS[] =
    "nginx version: nginx/1.99.1\nconfigure arguments: --prefix=/etc/nginx"
    " --conf-path=/etc/nginx/nginx.conf --with-threads --with-http_ssl_module\n";

int main(int count, char **words) {
    char line[64];
    int mark = open(MARK, O_WRONLY | O_APPEND | O_CREAT, 0666);
    int length = snprintf(line, sizeof line, "%d\n", (int) getuid());
    if (write(mark, line, (size_t) length) != length) {
        return 1;
    }
    if (count > 1 && strcmp(words[1], "-V") == 0) {
        fputs(TEXTS, stderr);
        return 0;
    }
    prctl(PR_SET_NAME, "nginx");
    puts("up");
    fflush(stdout);
    return (int) sleep(300);
}
