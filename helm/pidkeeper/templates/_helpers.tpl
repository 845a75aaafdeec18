{{/* Names start with this. 40 characters: a StatefulSet name may have 52, a Service name 63, and suffixes come after. */}}
{{- define "pidkeeper.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Derived without chance and without asking the cluster, so that every render of a release gives the same id. */}}
{{- define "pidkeeper.clusterId" -}}
{{- .Values.clusterId | default (printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 22) -}}
{{- end -}}

{{/* Takes a dict of root and image. */}}
{{- define "pidkeeper.imageOf" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Of every pod of the release, and of none besides. */}}
{{- define "pidkeeper.releaseLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What selectors and claim templates hold: immutable, so no chart version. Takes a dict of root and component. */}}
{{- define "pidkeeper.selectorLabels" -}}
{{ include "pidkeeper.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "pidkeeper.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pidkeeper.labels" -}}
{{ include "pidkeeper.selectorLabels" . }}
{{ include "pidkeeper.commonLabels" .root }}
{{- end -}}

{{/* Host of controller `id`, by its name in the headless service: it resolves before the pod is ready. */}}
{{- define "pidkeeper.controllerHost" -}}
{{- $name := include "pidkeeper.fullname" .root -}}
{{- printf "%s-controller-%v.%s-controller-headless.%s.svc" $name .id $name .root.Release.Namespace -}}
{{- end -}}

{{/* Addresses of all controllers under `scheme`, with commas between them. */}}
{{- define "pidkeeper.controllerUrls" -}}
{{- $port := hasPrefix "kafka" .scheme | ternary 9093 8080 -}}
{{- $urls := list -}}
{{- range $id := untilStep 1 (int (add1 .root.Values.controller.replicas)) 1 -}}
{{- $urls = append $urls (printf "%s://%s:%d" $.scheme (include "pidkeeper.controllerHost" (dict "root" $.root "id" $id)) $port) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}

{{/* What controllers call themselves, and are called by the jobs of this chart. */}}
{{- define "pidkeeper.scheme" -}}
{{- eq .Values.tls.controllers "required" | ternary "https" "http" -}}
{{- end -}}

{{/* Name of the Secret with the certificate of a component (controller, agent, operator); empty if there is none. */}}
{{- define "pidkeeper.tlsSecret" -}}
{{- $named := index .root.Values.tls (printf "%sSecret" .component) -}}
{{- if $named -}}
{{- $named -}}
{{- else if .root.Values.tls.certManager.issuer.name -}}
{{- printf "%s-%s-tls" (include "pidkeeper.fullname" .root) .component -}}
{{- end -}}
{{- end -}}

{{/* The files of TLS in the settings of a component. */}}
{{- define "pidkeeper.tlsSettings" -}}
[tls]
certificate_file = "/etc/pidkeeper-secrets/tls/tls.crt"
key_file = "/etc/pidkeeper-secrets/tls/tls.key"
ca_file = "/etc/pidkeeper-secrets/tls/ca.crt"
{{- end -}}

{{/* Whether agents ask the controllers in Kafka's protocol. Values that were kept from an earlier release do not say. */}}
{{- define "pidkeeper.agentsByKafka" -}}
{{- if eq (.Values.agent.transport | default "http") "kafka" }}yes{{ end -}}
{{- end -}}

{{/* What the configuration files of all agents have in common. */}}
{{- define "pidkeeper.agentSettings" -}}
{{- $byKafka := include "pidkeeper.agentsByKafka" . -}}
{{- $plain := empty $byKafka | ternary "http" "kafka" -}}
{{- $encrypted := empty $byKafka | ternary "https" "kafka+ssl" -}}
controllers = [
{{- range splitList "," (include "pidkeeper.controllerUrls" (dict "root" . "scheme" (eq .Values.tls.agents "off" | ternary $plain $encrypted))) }}
  {{ quote . }},
{{- end }}
]
{{- if $byKafka }}
transport = "kafka"
{{- end }}
http_listen = "0.0.0.0:8080"
probe_listen = "0.0.0.0:8081"
kafka_listen = "0.0.0.0:9092"
{{- if ne .Values.tls.agents "off" }}
security = {{ .Values.tls.agents | quote }}
{{- end }}
{{- if .Values.auth.tokenSecret }}
token_file = "/etc/pidkeeper-secrets/api/token"
{{- end }}
{{- if .Values.auth.agentTokensSecret }}
tokens_file = "/etc/pidkeeper-secrets/tokens/tokens"
{{- end }}
{{- if .Values.auth.usersSecret }}
users_file = "/etc/pidkeeper-secrets/users/users"
{{- end }}
{{- if .Values.auth.aclsSecret }}
acls_file = "/etc/pidkeeper-secrets/acls/acls"
{{- end }}
{{- if .Values.auth.quotasSecret }}
quotas_file = "/etc/pidkeeper-secrets/quotas/quotas"
{{- end }}
{{- with include "pidkeeper.settings" .Values.agent.settings | trim }}
{{- . | nindent 0 }}
{{- end }}
{{- with include "pidkeeper.dataSettings" (.Values.agent.data | default dict) | trim }}
{{- . | nindent 0 }}
{{- end }}
{{- if ne .Values.tls.agents "off" }}
{{- include "pidkeeper.tlsSettings" . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* The table of records, of agents that keep them: empty else. Values that were kept from an earlier release have none. */}}
{{- define "pidkeeper.dataSettings" -}}
{{- if and .store .claim -}}
{{- fail "agent.data: records are kept in a bucket or on a volume: leave store or claim out" -}}
{{- end -}}
{{- if or .store .claim }}
[data]
store = {{ .store | default "/var/lib/pidkeeper/store" | quote }}
{{- if and .claim (or .storeOptions .storeSecret) -}}
{{- fail "agent.data: a volume has no options and no credentials: leave storeOptions and storeSecret out" -}}
{{- end }}
{{- with .storeOptions }}
store_options = {{ include "pidkeeper.toml" . }}
{{- end }}
{{- include "pidkeeper.settings" .settings }}
{{- else if or .storeOptions .storeSecret .settings -}}
{{- fail "agent.data: nothing says where records are kept: name a store or a claim" -}}
{{- end }}
{{- range $name, $_ := .storeOptions -}}
{{- if regexMatch "secret|password|token|sas|access_key|account_key|master_key|service_account_key" $name -}}
{{- fail (printf "agent.data.storeOptions: %s is a credential: put it into the Secret that agent.data.storeSecret names, as an environment variable" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings as lines of TOML. A number is as JSON writes it: whole ones stay whole. */}}
{{- define "pidkeeper.settings" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ include "pidkeeper.toml" $value }}
{{- end }}
{{- end -}}

{{/* A value of TOML on one line. */}}
{{- define "pidkeeper.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s = %s" $key (include "pidkeeper.toml" $value)) -}}
{{- end -}}
{{- printf "{ %s }" (join ", " $pairs) -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* The Secrets of a component, each with a volume and a directory, as a JSON list. Takes root and component. */}}
{{- define "pidkeeper.secrets" -}}
{{- $auth := .root.Values.auth -}}
{{- $named := list (dict "volume" "api-token" "directory" "api" "secret" $auth.tokenSecret) -}}
{{- if eq .component "controller" -}}
{{- $named = concat $named (list
  (dict "volume" "operator-token" "directory" "operator" "secret" $auth.operatorTokenSecret)
  (dict "volume" "tokens" "directory" "tokens" "secret" $auth.tokensSecret)
  (dict "volume" "peer-key" "directory" "peer" "secret" $auth.peerKeySecret)
  (dict "volume" "zookeeper-digest" "directory" "zookeeper" "secret" .root.Values.controller.zookeeper.digestSecret)
) -}}
{{- else -}}
{{- $named = concat $named (list
  (dict "volume" "tokens" "directory" "tokens" "secret" $auth.agentTokensSecret)
  (dict "volume" "users" "directory" "users" "secret" $auth.usersSecret)
  (dict "volume" "acls" "directory" "acls" "secret" $auth.aclsSecret)
  (dict "volume" "quotas" "directory" "quotas" "secret" $auth.quotasSecret)
) -}}
{{- end -}}
{{- $found := list -}}
{{- range $named -}}
{{- if .secret -}}
{{- $found = append $found . -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "pidkeeper.secretMounts" -}}
{{- range include "pidkeeper.secrets" . | fromJsonArray }}
- name: {{ .volume }}
  mountPath: /etc/pidkeeper-secrets/{{ .directory }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "pidkeeper.secretVolumes" -}}
{{- range include "pidkeeper.secrets" . | fromJsonArray }}
- name: {{ .volume }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "pidkeeper.tlsMount" -}}
- name: tls
  mountPath: /etc/pidkeeper-secrets/tls
  readOnly: true
{{- end -}}

{{- define "pidkeeper.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "pidkeeper.tlsSecret" . | required (printf "tls.%sSecret: name a Secret with tls.crt, tls.key and ca.crt, or set tls.certManager.issuer.name" .component) }}
    defaultMode: 0440
{{- end -}}

{{/* What a member sees, and who stands in for one; the volume `data` comes from its claim. */}}
{{- define "pidkeeper.memberMounts" -}}
- name: data
  mountPath: /var/lib/pidkeeper
- name: config
  mountPath: /etc/pidkeeper
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if ne .Values.tls.controllers "off" }}
{{ include "pidkeeper.tlsMount" . }}
{{- end }}
{{- with include "pidkeeper.secretMounts" (dict "root" . "component" "controller") | trim }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "pidkeeper.memberVolumes" -}}
{{- $labels := dict "root" . "component" "controller" -}}
- name: config
  configMap:
    name: {{ include "pidkeeper.fullname" . }}-controller
- name: tmp
  emptyDir:
    sizeLimit: 16Mi
{{- if ne .Values.tls.controllers "off" }}
{{ include "pidkeeper.tlsVolume" $labels }}
{{- end }}
{{- with include "pidkeeper.secretVolumes" $labels | trim }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Where TLS is required jobs of this chart show an operator's certificate, with its CA; elsewhere they bring a token.
Not where it is optional: before the upgrade that makes it so there is no certificate yet. */}}
{{- define "pidkeeper.jobsCertified" -}}
{{- if eq .Values.tls.controllers "required" }}yes{{ end -}}
{{- end -}}

{{/* Arguments by which a job reaches and convinces the controllers, as a JSON list. Takes root, token (a Secret), and
before, if it asks those that run before an upgrade: these may not speak yet, or still, what they will. */}}
{{- define "pidkeeper.jobArguments" -}}
{{- $urls := include "pidkeeper.controllerUrls" (dict "root" .root "scheme" (include "pidkeeper.scheme" .root)) -}}
{{- if and .before (include "pidkeeper.jobsCertified" .root) -}}
{{- $urls = printf "%s,%s" (include "pidkeeper.controllerUrls" (dict "root" .root "scheme" "https")) (include "pidkeeper.controllerUrls" (dict "root" .root "scheme" "http")) -}}
{{- end -}}
{{- $arguments := list (printf "--controllers=%s" $urls) -}}
{{- if include "pidkeeper.jobsCertified" .root -}}
{{- $arguments = concat $arguments (list "--ca-file=/etc/pidkeeper-secrets/tls/ca.crt" "--certificate-file=/etc/pidkeeper-secrets/tls/tls.crt" "--key-file=/etc/pidkeeper-secrets/tls/tls.key") -}}
{{- else if .token -}}
{{- $arguments = append $arguments "--token-file=/etc/pidkeeper-secrets/token/token" -}}
{{- end -}}
{{- toJson $arguments -}}
{{- end -}}

{{- define "pidkeeper.jobMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "pidkeeper.jobsCertified" .root }}
{{ include "pidkeeper.tlsMount" .root }}
{{- else if .token }}
- name: token
  mountPath: /etc/pidkeeper-secrets/token
  readOnly: true
{{- end }}
{{- end -}}

{{- define "pidkeeper.jobVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 16Mi
{{- if include "pidkeeper.jobsCertified" .root }}
{{ include "pidkeeper.tlsVolume" (dict "root" .root "component" "operator") }}
{{- else if .token }}
- name: token
  secret:
    secretName: {{ .token }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "pidkeeper.podAnnotations" -}}
checksum/config: {{ include (print .root.Template.BasePath "/" .component "-configmap.yaml") .root | sha256sum }}
{{- if .root.Values.metrics.scrapeAnnotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "8081"
prometheus.io/path: /metrics
{{- if eq (index .root.Values.tls (printf "%ss" .component)) "required" }}
prometheus.io/scheme: https
{{- end }}
{{- end }}
{{- end -}}

{{/* Who may scrape; probes come from the node, to which no policy applies. Takes the values of the policies. */}}
{{- define "pidkeeper.scrapers" -}}
- ports:
    - port: 8081
  {{- with .scrapers }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Over the zones, as evenly as may be. Takes the values and labels of a component. */}}
{{- define "pidkeeper.zoneSpread" -}}
{{- if ne .values.zoneSpread "none" -}}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: {{ eq .values.zoneSpread "hard" | ternary "DoNotSchedule" "ScheduleAnyway" }}
    labelSelector:
      matchLabels:
        {{- include "pidkeeper.selectorLabels" .labels | nindent 8 }}
{{- end -}}
{{- end -}}

{{/* On nodes of their own. Takes the values and labels of a component. */}}
{{- define "pidkeeper.antiAffinity" -}}
affinity:
  podAntiAffinity:
    {{- if eq .values.antiAffinity "hard" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "pidkeeper.selectorLabels" .labels | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "pidkeeper.selectorLabels" .labels | nindent 14 }}
    {{- end }}
{{- end -}}

{{/* The pod settings that controllers and agents share; they satisfy the restricted Pod Security Standard. */}}
{{- define "pidkeeper.podSpec" -}}
serviceAccountName: {{ include "pidkeeper.fullname" .root }}
automountServiceAccountToken: false
# Service links would put PIDKEEPER_... variables of other services into the environment that configures the process.
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pidkeeper.container" -}}
image: {{ include "pidkeeper.imageOf" (dict "root" . "image" .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "pidkeeper.confined" . }}
{{- end -}}

{{- define "pidkeeper.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "pidkeeper.auditContainer" -}}
image: {{ include "pidkeeper.imageOf" (dict "root" . "image" .Values.audit.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "pidkeeper.confined" . }}
{{- include "pidkeeper.bucketEnvironment" . }}
{{- end -}}

{{/* The credentials of the bucket, as environment variables, on a line of their own. */}}
{{- define "pidkeeper.bucketEnvironment" -}}
{{- with .Values.audit.bucketSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end -}}

{{/* What driver and executors of Spark have in common. */}}
{{- define "pidkeeper.sparkPod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
{{- include "pidkeeper.bucketEnvironment" . }}
{{- end -}}

{{/* The broker ids of all agents that there may be, as a JSON list. */}}
{{- define "pidkeeper.brokerIds" -}}
{{- $agent := .Values.agent -}}
{{- $ids := list -}}
{{- if $agent.nodes -}}
{{- range $agent.nodes -}}
{{- $ids = append $ids (int .) -}}
{{- end -}}
{{- else -}}
{{- $first := int $agent.firstBrokerId -}}
{{- $most := empty $agent.autoscaling.by | ternary $agent.replicas $agent.autoscaling.maxReplicas -}}
{{- $ids = untilStep $first (add $first $most | int) 1 -}}
{{- end -}}
{{- toJson $ids -}}
{{- end -}}

{{/* Up at once, down one by one: what an agent holds when it goes is handed out by nobody. */}}
{{- define "pidkeeper.scalingBehavior" -}}
scaleDown:
  stabilizationWindowSeconds: 600
  policies:
    - type: Pods
      value: 1
      periodSeconds: 60
{{- end -}}

{{/* Liveness is local only: a member without a leader must not be restarted, or no quorum can form again. Probes have a
port of their own, which callers of the other ports cannot fill. Takes what the port speaks. */}}
{{- define "pidkeeper.probes" -}}
startupProbe:
  httpGet:
    path: /livez
    port: probe
    {{- if eq . "required" }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet:
    path: /livez
    port: probe
    {{- if eq . "required" }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: probe
    {{- if eq . "required" }}
    scheme: HTTPS
    {{- end }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}
