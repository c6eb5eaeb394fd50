// Command client is what Go programs do to a cluster, told in JSON lines. Run straight at an apiserver and through the proxy,
// the outputs of crud, informer, elect and control must be equal: nothing in them depends on time, uids or resourceVersions.
// What reflect, inform, retry and page tell is compared with what happened. fleet tells how long it took.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// timeout ends a run that hangs: an event that never comes, a sync that never ends. Some runs wait for what a test does.
const timeout = 180 * time.Second

func main() {
	// The default set has flags of controller-runtime.
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig")
	contextName := flags.String("context", "", "the context in it")
	namespace := flags.String("namespace", "default", "where the objects are")
	kind := flags.String("client", "typed", "typed (protobuf), json (typed, as JSON), dynamic (JSON) or metadata; connections: runtime or metadata")
	name := flags.String("name", "", "elect: who this candidate is")
	lost := flags.String("lost", "", "fleet: the context of a cluster that is lost")
	_ = flags.Parse(os.Args[1:])
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	outcome := func() error {
		if flags.Arg(0) != "fleet" {
			return run(ctx, *kubeconfig, *contextName, *namespace, *kind, *name, flags.Arg(0))
		}
		healthy, err := load(*kubeconfig, *contextName)
		if err != nil {
			return err
		}
		gone, err := load(*kubeconfig, *lost)
		if err != nil {
			return err
		}
		return fleet(ctx, healthy, gone, *namespace)
	}
	if err := outcome(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(kubeconfig, contextName string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
}

func run(ctx context.Context, kubeconfig, contextName, namespace, kind, name, scenario string) error {
	config, err := load(kubeconfig, contextName)
	if err != nil {
		return err
	}
	config.UserAgent = "fleetcache-e2e-client"
	config.QPS = -1
	switch scenario {
	case "connections", "crud", "informer":
	default:
		config.Wrap(tellRequests)
	}
	if scenario == "control" {
		return control(ctx, config, namespace)
	}
	if scenario == "connections" {
		return connections(ctx, config, kind)
	}
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	switch scenario {
	case "crud":
		objects, err := clients.configMaps(kind, namespace)
		if err != nil {
			return err
		}
		return crud(ctx, objects)
	case "elect":
		return elect(ctx, clients, namespace, name)
	case "inform":
		return inform(ctx, clients, kind, namespace)
	case "informer":
		return informOfSteps(ctx, clients, kind, namespace)
	case "page":
		return page(ctx, clients, kind, namespace)
	case "reflect":
		return reflect(ctx, clients, kind, namespace)
	case "retry":
		return retry(ctx, clients, kind, namespace)
	}
	return fmt.Errorf("no scenario %q: say connections, control, crud, elect, fleet, inform, informer, page, reflect or retry", scenario)
}

// clients are the ways client-go talks to a server.
type clients struct {
	typed    kubernetes.Interface
	json     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

func newClients(config *rest.Config) (*clients, error) {
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	binary.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return nil, err
	}
	// Without a word about it the typed client asks for protobuf first.
	text := rest.CopyConfig(config)
	text.ContentType = "application/json"
	text.AcceptContentTypes = "application/json"
	json, err := kubernetes.NewForConfig(text)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &clients{typed: typed, json: json, dynamic: untyped, metadata: partial}, nil
}

// say prints one line: what was done and what came of it.
func say(step string, result any) {
	line, err := json.Marshal(map[string]any{"step": step, "result": result})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// summary is what of a ConfigMap does not change from run to run.
func summary(object *corev1.ConfigMap) map[string]any {
	return map[string]any{
		"name": object.Name, "labels": object.Labels, "data": object.Data,
		"complete": object.UID != "" && object.ResourceVersion != "" && !object.CreationTimestamp.IsZero(),
	}
}

// problem is what a program sees of an error.
func problem(err error) any {
	if status, ok := err.(apierrors.APIStatus); ok {
		s := status.Status()
		return map[string]any{"code": s.Code, "reason": s.Reason, "message": s.Message}
	}
	return err.Error()
}
