/*
 * The only program of the test image: the pause process of every pod and the main process of every container.
 *
 *   app [pause [CODE]]             wait; exit with CODE (0) on SIGTERM or SIGINT
 *   app exit CODE [MILLISECONDS]   exit with CODE after this time (0); with 143 or 130 on an earlier SIGTERM or SIGINT
 *   app ignore-term                run until SIGKILL; ignore SIGTERM and SIGINT
 *
 * Process 1 of a pid namespace receives only signals that it handles, so each mode sets its handlers.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 64 };

static volatile sig_atomic_t pause_code = 0;

static void exit_paused(int signal) {
    (void)signal;
    _exit(pause_code);
}

static void exit_as_killed(int signal) {
    _exit(128 + signal);
}

static void on_stop_signals(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* Orphans of the pod become children of its pause process. With SIG_IGN the kernel reaps them. */
    signal(SIGCHLD, SIG_IGN);
}

static int usage(void) {
    fputs("usage: app [pause [CODE] | exit CODE [MILLISECONDS] | ignore-term]\n", stderr);
    return EXIT_USAGE;
}

/* Parses a decimal number from 0 to max; -1 if the text is none. */
static long number(const char *text, long max) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno || end == text || *end || value < 0 || value > max ? -1 : value;
}

static void sleep_ms(long ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "pause";

    if (strcmp(mode, "exit") == 0 && (argc == 3 || argc == 4)) {
        long code = number(argv[2], 255);
        long ms = argc == 4 ? number(argv[3], 2000000000L) : 0;
        if (code < 0 || ms < 0) return usage();
        on_stop_signals(exit_as_killed);
        sleep_ms(ms);
        return (int)code;
    }
    if (strcmp(mode, "pause") == 0 && argc == 3) {
        long code = number(argv[2], 255);
        if (code < 0) return usage();
        pause_code = (int)code;
    } else if (argc > 2) {
        return usage();
    }
    if (strcmp(mode, "pause") == 0)
        on_stop_signals(exit_paused);
    else if (strcmp(mode, "ignore-term") == 0)
        on_stop_signals(SIG_IGN);
    else
        return usage();
    for (;;) pause();
}
