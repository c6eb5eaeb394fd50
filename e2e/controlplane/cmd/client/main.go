// Command client is what a Go program does to a cluster, told in JSON lines. Run straight at an apiserver and through the
// proxy, the two outputs must be equal: nothing in them depends on time, uids or resourceVersions.
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

// timeout ends a run that hangs: an event that never comes, a sync that never ends.
const timeout = 60 * time.Second

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig")
	contextName := flag.String("context", "", "the context in it")
	namespace := flag.String("namespace", "default", "where the objects are made; it must hold no ConfigMaps")
	kind := flag.String("client", "typed", "typed (protobuf), dynamic (JSON) or, for informers, metadata")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := run(ctx, *kubeconfig, *contextName, *namespace, *kind, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, contextName, namespace, kind, scenario string) error {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "fleetcache-e2e-client"
	config.QPS = -1
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
	case "informer":
		return inform(ctx, clients, kind, namespace)
	}
	return fmt.Errorf("no scenario %q: say crud or informer", scenario)
}

// clients are the three ways client-go talks to a server.
type clients struct {
	typed    kubernetes.Interface
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
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &clients{typed: typed, dynamic: untyped, metadata: partial}, nil
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
