package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	// idleTimeout and creationTimeout are the defaults of a kubelet.
	idleTimeout     = 4 * time.Hour
	creationTimeout = remotecommand.DefaultStreamCreationTimeout
	// logLines is how much every container has written before anybody asked.
	logLines = 10
	// logInterval is the time between the lines that follow.
	logInterval = 50 * time.Millisecond
	// logFollowAnnotation ends a followed log after so many further lines; without it the log ends with the request.
	logFollowAnnotation = "kubelet.fleetcache.dev/log-lines"
	// refusedPort is one that nothing in a pod listens on; every other port echoes.
	refusedPort = 1
)

// server answers what the apiserver asks a kubelet, on the paths of a kubelet.
type server struct {
	lister corelisters.PodLister
}

func newServer(lister corelisters.PodLister) *server {
	return &server{lister: lister}
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.withPod(s.logs))
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", s.withPod(s.exec))
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", s.withPod(s.attach))
	mux.HandleFunc("/portForward/{namespace}/{pod}", s.withPod(s.portForward))
	return mux
}

func (s *server) withPod(next func(http.ResponseWriter, *http.Request, *corev1.Pod)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		pod, err := s.lister.Pods(r.PathValue("namespace")).Get(r.PathValue("pod"))
		if err != nil {
			http.Error(w, "pod does not exist", http.StatusNotFound)
			return
		}
		next(w, r, pod)
	}
}

// logs writes the same lines for the same pod every time, so that two answers can be compared.
func (s *server) logs(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	query := r.URL.Query()
	first := 1
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		first = max(1, logLines-tail+1)
	}
	line := func(n int) { fmt.Fprintf(w, "%s/%s line %d\n", pod.Name, r.PathValue("container"), n) }
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	for n := first; n <= logLines; n++ {
		line(n)
	}
	if query.Get("follow") != "true" {
		return
	}
	last, err := strconv.Atoi(pod.Annotations[logFollowAnnotation])
	bounded := err == nil
	for n := logLines + 1; !bounded || n <= logLines+last; n++ {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(logInterval):
			line(n)
		}
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command := r.URL.Query()["command"]
	remotecommand.ServeExec(w, r, runtime{pod}, pod.Name, string(pod.UID), r.PathValue("container"), command, options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) attach(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, runtime{pod}, pod.Name, string(pod.UID), r.PathValue("container"), options, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (s *server) portForward(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, runtime{pod}, pod.Name, string(pod.UID), options, idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

// runtime stands for the container runtime of one pod.
type runtime struct {
	pod *corev1.Pod
}

// ExecInContainer implements remotecommand.Executor.
func (r runtime) ExecInContainer(ctx context.Context, _, _, container string, argv []string, in io.Reader, out, err io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	p := process{pod: r.pod, container: container, in: in, out: out, err: err, resize: resize}
	return p.exitError(p.run(ctx, argv))
}

// AttachContainer implements remotecommand.Attacher: the container greets and then echoes what it is told.
func (r runtime) AttachContainer(ctx context.Context, _, _, container string, in io.Reader, out, err io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	p := process{pod: r.pod, container: container, in: in, out: out, err: err, resize: resize}
	p.run(ctx, []string{"echo", "attached to", r.pod.Name + "/" + container})
	p.run(ctx, []string{"cat"})
	return nil
}

// PortForward implements portforward.PortForwarder.
func (r runtime) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port == refusedPort {
		return fmt.Errorf("failed to connect to localhost:%d inside the pod: connection refused", port)
	}
	_, err := io.Copy(stream, stream)
	return err
}
