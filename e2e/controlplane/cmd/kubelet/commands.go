package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// process is one command in a container. There is no container: the commands are those below and touch nothing outside.
type process struct {
	pod       *corev1.Pod
	container string
	in        io.Reader
	out       io.Writer
	err       io.Writer
	resize    <-chan remotecommand.TerminalSize
}

func (p *process) exitError(code int) error {
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

// run executes one command and returns its exit code.
func (p *process) run(ctx context.Context, argv []string) int {
	if len(argv) == 0 {
		return 0
	}
	out, args := writer(p.out), argv[1:]
	if len(args) > 0 && args[len(args)-1] == ">&2" {
		out, args = writer(p.err), args[:len(args)-1]
	}
	switch argv[0] {
	case "true", ":":
		return 0
	case "false":
		return 1
	case "exit":
		return exitCode(args)
	case "echo":
		fmt.Fprintln(out, strings.Join(args, " "))
	case "cat":
		io.Copy(out, p.stdin())
	case "sha256sum":
		// Proves that what was sent through is what arrived.
		hash := sha256.New()
		n, _ := io.Copy(hash, p.stdin())
		fmt.Fprintf(out, "%x %d\n", hash.Sum(nil), n)
	case "env":
		for _, line := range p.env() {
			fmt.Fprintln(out, line)
		}
	case "hostname":
		fmt.Fprintln(out, p.pod.Name)
	case "stty":
		// Prints the size of the terminal once the client has told it: `stty size`.
		if size, ok := <-p.resize; ok {
			fmt.Fprintf(out, "%d %d\r\n", size.Height, size.Width)
		}
	case "yes":
		for {
			if _, err := fmt.Fprintln(out, "y"); err != nil {
				return 1
			}
		}
	case "zeros":
		// Writes so many bytes; a large answer without a large request.
		n, _ := strconv.ParseInt(strings.Join(args, ""), 10, 64)
		io.CopyN(out, zeros{}, n)
	case "sleep":
		return sleep(ctx, args)
	case "sh":
		if len(args) == 2 && args[0] == "-c" {
			return p.script(ctx, args[1])
		}
		script, _ := io.ReadAll(p.stdin())
		return p.script(ctx, string(script))
	default:
		fmt.Fprintf(writer(p.err), "%s: not found\n", argv[0])
		return 127
	}
	return 0
}

// script runs commands one after the other, separated by `;`, `&&` or a newline, without any quoting.
func (p *process) script(ctx context.Context, text string) int {
	code := 0
	for _, statement := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		for _, command := range strings.Split(statement, "&&") {
			argv := strings.Fields(command)
			code = p.run(ctx, argv)
			if len(argv) > 0 && argv[0] == "exit" {
				return code
			}
			if code != 0 {
				break
			}
		}
	}
	return code
}

func (p *process) env() []string {
	env := []string{"HOSTNAME=" + p.pod.Name}
	for _, container := range p.pod.Spec.Containers {
		if container.Name != p.container {
			continue
		}
		for _, variable := range container.Env {
			env = append(env, variable.Name+"="+variable.Value)
		}
	}
	return env
}

func (p *process) stdin() io.Reader {
	if p.in == nil {
		return strings.NewReader("")
	}
	return p.in
}

// sleep ends with the request at the latest. A hijacked connection does not always end its request, hence the bound.
func sleep(ctx context.Context, args []string) int {
	seconds, err := strconv.ParseFloat(strings.Join(args, ""), 64)
	if err != nil {
		seconds = 600
	}
	select {
	case <-ctx.Done():
		return 130
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return 0
	}
}

func exitCode(args []string) int {
	code, err := strconv.Atoi(strings.Join(args, ""))
	if err != nil {
		fmt.Fprintln(os.Stderr, "exit without a code")
		return 2
	}
	return code
}

// writer makes an absent stream one that takes everything.
func writer(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
